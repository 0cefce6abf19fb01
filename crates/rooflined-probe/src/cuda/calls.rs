//! The functions of the CUDA driver that the probe calls, from `libcuda.so.1`, with the types and numbers of cudarc's bindings.
//!
//! cudarc's own loader is not used: it takes `libcuda.so` first, which toolkits install for linking and which may be a stub
//! that answers nothing, and its results are an enumeration, which a younger driver's codes are none of. Here functions are
//! looked up in `libcuda.so.1` first and answer with a plain number.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUgraph, CUgraphExec, CUmodule, CUstream,
};
use libloading::Library;

/// The name that the driver's own library has, before the one that programs are linked against.
const NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

/// Why there is nothing to call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// No library of that name, and what the loader says.
    Library(String),
    /// The library lacks a function.
    Function(&'static str),
}

macro_rules! calls {
    ($($field:ident = $symbol:literal($($argument:ty),*);)*) => {
        /// Each returns a `CUresult` as a number.
        pub struct Calls {
            $(pub $field: unsafe extern "C" fn($($argument),*) -> c_uint,)*
            /// What they point into.
            _library: Library,
        }

        impl Calls {
            /// # Errors
            /// There is no driver, or one that lacks a function of CUDA 11.4.
            pub fn load() -> Result<Self, Missing> {
                let library = open()?;
                Ok(Self {
                    $($field: {
                        // SAFETY: the type is that of the function of this name in cuda.h.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) -> c_uint>($symbol.as_bytes())
                        };
                        *found.map_err(|_| Missing::Function($symbol))?
                    },)*
                    _library: library,
                })
            }
        }
    };
}

calls! {
    init = "cuInit"(c_uint);
    driver_version = "cuDriverGetVersion"(*mut c_int);
    device_count = "cuDeviceGetCount"(*mut c_int);
    device = "cuDeviceGet"(*mut CUdevice, c_int);
    device_name = "cuDeviceGetName"(*mut c_char, c_int, CUdevice);
    device_attribute = "cuDeviceGetAttribute"(*mut c_int, c_uint, CUdevice);
    context_retain = "cuDevicePrimaryCtxRetain"(*mut CUcontext, CUdevice);
    context_release = "cuDevicePrimaryCtxRelease_v2"(CUdevice);
    context_set = "cuCtxSetCurrent"(CUcontext);
    memory_info = "cuMemGetInfo_v2"(*mut usize, *mut usize);
    allocate = "cuMemAlloc_v2"(*mut CUdeviceptr, usize);
    free = "cuMemFree_v2"(CUdeviceptr);
    fill = "cuMemsetD8_v2"(CUdeviceptr, u8, usize);
    copy_in = "cuMemcpyHtoD_v2"(CUdeviceptr, *const c_void, usize);
    copy_out = "cuMemcpyDtoH_v2"(*mut c_void, CUdeviceptr, usize);
    copy_within = "cuMemcpyDtoD_v2"(CUdeviceptr, CUdeviceptr, usize);
    module_load = "cuModuleLoadData"(*mut CUmodule, *const c_void);
    module_function = "cuModuleGetFunction"(*mut CUfunction, CUmodule, *const c_char);
    function_set = "cuFuncSetAttribute"(CUfunction, c_uint, c_int);
    occupancy = "cuOccupancyMaxActiveBlocksPerMultiprocessor"(*mut c_int, CUfunction, c_int, usize);
    launch = "cuLaunchKernel"(
        CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void, *mut *mut c_void
    );
    stream_create = "cuStreamCreate"(*mut CUstream, c_uint);
    stream_destroy = "cuStreamDestroy_v2"(CUstream);
    capture_begin = "cuStreamBeginCapture_v2"(CUstream, c_uint);
    capture_end = "cuStreamEndCapture"(CUstream, *mut CUgraph);
    graph_instantiate = "cuGraphInstantiateWithFlags"(*mut CUgraphExec, CUgraph, c_ulonglong);
    graph_destroy = "cuGraphDestroy"(CUgraph);
    graph_launch = "cuGraphLaunch"(CUgraphExec, CUstream);
    graph_exec_destroy = "cuGraphExecDestroy"(CUgraphExec);
    event_create = "cuEventCreate"(*mut CUevent, c_uint);
    event_record = "cuEventRecord"(CUevent, CUstream);
    event_query = "cuEventQuery"(CUevent);
    event_elapsed = "cuEventElapsedTime"(*mut f32, CUevent, CUevent);
    event_destroy = "cuEventDestroy_v2"(CUevent);
}

fn open() -> Result<Library, Missing> {
    let mut said = String::new();
    for name in NAMES {
        // SAFETY: runs the constructors of the driver's library, which is what it is loaded for.
        match unsafe { Library::new(name) } {
            Ok(library) => return Ok(library),
            // That the first name was not found says more than that the second was not.
            Err(error) if said.is_empty() => said = error.to_string(),
            Err(_) => {}
        }
    }
    Err(Missing::Library(said))
}
