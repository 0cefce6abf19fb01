//! `wgmma` and `tcgen05` on small programs: layouts and rules that the shipped kernels do not use.

use std::fmt::Write as _;

use crate::{Arena, Fault, Launch, Module, launch};

/// Bytes of shared memory: A from 0 on, B from [`B`] on.
const BYTES: usize = 32 << 10;
const B: usize = 16 << 10;

/// 128 threads copy `input` to shared memory, fence it and meet; then the body, with `%t` the thread and `%o` its
/// 32 bytes of the output.
fn run(body: &str, input: &[u8]) -> Result<Vec<u32>, Fault> {
    assert_eq!(input.len(), BYTES);
    let mut copy = String::new();
    for at in (0..BYTES).step_by(128 * 16) {
        write!(
            copy,
            "ld.global.v4.u32 {{%r0, %r1, %r2, %r3}}, [%i+{at}];\n\
             st.shared.v4.u32 [%s+{at}], {{%r0, %r1, %r2, %r3}};\n"
        )
        .unwrap();
    }
    let text = format!(
        ".version 9.0\n.target sm_90a\n.address_size 64\n\
         .visible .entry test(\n.param .u64 p0,\n.param .u64 p1\n)\n.maxntid 128\n{{\n\
         .reg .pred %p<4>;\n.reg .b32 %r<40>;\n.reg .b32 %t;\n.reg .b32 %s;\n.reg .f32 %f<9>;\n.reg .b64 %d<9>;\n\
         .reg .b64 %i;\n.reg .b64 %o;\n\
         .shared .align 1024 .b8 tiles[{BYTES}];\n.shared .align 8 .b64 done;\n.shared .align 4 .b32 memory;\n\
         mov.u32 %t, %tid.x;\nld.param.u64 %i, [p0];\nld.param.u64 %o, [p1];\n\
         mul.wide.u32 %d0, %t, 16;\nadd.s64 %i, %i, %d0;\nmul.wide.u32 %d0, %t, 32;\nadd.s64 %o, %o, %d0;\n\
         shl.b32 %s, %t, 4;\n{copy}fence.proxy.async.shared::cta;\nbar.sync 0;\n{body}\nret;\n}}\n"
    );
    let module = Module::parse(&text).unwrap();
    let mut arena = Arena::new();
    let (given, out) = (arena.place(input), arena.alloc(128 * 32));
    let params = [given, out].map(|address| address.to_le_bytes().to_vec());
    let settings =
        Launch { grid: [1, 1, 1], block: [128, 1, 1], shared_bytes: 0, params: &params, limit: 1_000_000 };
    launch(module.entry("test").unwrap(), &settings, &mut arena)?;
    let bytes = arena.bytes(out).unwrap();
    Ok(bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect())
}

/// Whole numbers that are exact in fp16, different for neighbours.
fn number(row: usize, k: usize) -> f64 {
    ((row * 5 + k * 3 + row * k) % 17) as f64 - 8.0
}

fn put(input: &mut [u8], at: usize, value: f64) {
    input[at..at + 2].copy_from_slice(&half::f16::from_f64(value).to_le_bytes());
}

const fn descriptor(start: usize, leading: usize, stride: usize, swizzle: u64) -> u64 {
    (start >> 4 | (leading >> 4) << 16 | (stride >> 4) << 32) as u64 | swizzle << 62
}

/// Where an element of 64 rows of 16 halves lies: bytes from row and depth.
type Place = fn(usize, usize) -> usize;

/// The swizzle as a descriptor has it, the offsets, whether it is transposed, and the layout by the figures of the ISA.
const LAYOUTS: [(&str, u64, usize, usize, u32, Place); 8] = [
    ("plain, K-major", 0, 1024, 128, 0, |m, k| m / 8 * 128 + k / 8 * 1024 + m % 8 * 16 + k % 8 * 2),
    ("32 bytes, K-major", 3, 16, 256, 0, |m, k| m * 32 + ((k / 8) ^ (m / 4 % 2)) * 16 + k % 8 * 2),
    ("64 bytes, K-major", 2, 16, 512, 0, |m, k| m * 64 + ((k / 8) ^ (m / 2 % 4)) * 16 + k % 8 * 2),
    ("128 bytes, K-major", 1, 16, 1024, 0, |m, k| m * 128 + ((k / 8) ^ (m % 8)) * 16 + k % 8 * 2),
    ("plain, M-major", 0, 128, 256, 1, |m, k| m / 8 * 256 + k / 8 * 128 + k % 8 * 16 + m % 8 * 2),
    ("32 bytes, M-major", 3, 512, 256, 1, |m, k| {
        m / 16 * 512 + k * 32 + ((m / 8 % 2) ^ (k / 4 % 2)) * 16 + m % 8 * 2
    }),
    ("64 bytes, M-major", 2, 1024, 512, 1, |m, k| {
        m / 32 * 1024 + k * 64 + ((m / 8 % 4) ^ (k / 2 % 4)) * 16 + m % 8 * 2
    }),
    ("128 bytes, M-major", 1, 16, 1024, 1, |m, k| k * 128 + ((m / 8) ^ (k % 8)) * 16 + m % 8 * 2),
];

/// Eight columns in core matrices of 128 bytes.
fn columns(input: &mut [u8]) {
    for n in 0..8 {
        for k in 0..16 {
            put(input, B + k / 8 * 128 + n * 16 + k % 8 * 2, number(n + 3, k));
        }
    }
}

fn wanted(row: usize, column: usize) -> f64 {
    (0..16).map(|k| number(row, k) * number(column + 3, k)).sum()
}

#[test]
fn warpgroups_read_every_canonical_layout() {
    for (name, swizzle, leading, stride, transposed, place) in LAYOUTS {
        let mut input = vec![0; BYTES];
        columns(&mut input);
        for m in 0..64 {
            for k in 0..16 {
                put(&mut input, place(m, k), number(m, k));
            }
        }
        let (a, b) = (descriptor(0, leading, stride, swizzle), descriptor(B, 128, 256, 0));
        let words = run(
            &format!(
                "mov.u64 %d1, {a};\nmov.u64 %d2, {b};\nwgmma.fence.sync.aligned;\n\
                 wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f0, %f1, %f2, %f3}}, %d1, %d2, 0, 1, 1, \
                 {transposed}, 0;\n\
                 wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n\
                 st.global.v4.f32 [%o], {{%f0, %f1, %f2, %f3}};"
            ),
            &input,
        )
        .unwrap_or_else(|fault| panic!("{name}: {fault}"));
        for thread in 0..128 {
            for r in 0..4 {
                let row = thread / 32 * 16 + thread % 32 / 4 + r / 2 * 8;
                let column = thread % 4 * 2 + r % 2;
                let got = f32::from_bits(words[thread * 8 + r]);
                assert_eq!(f64::from(got), wanted(row, column), "{name}: row {row}, column {column}");
            }
        }
    }
}

/// Factors of ue8m0 that `tcgen05.cp` puts into tensor memory, one byte of each word by the descriptor's number.
#[test]
fn factors_are_copied_to_all_lanes_and_chosen_by_number() {
    // A: 128 rows of 32 bytes e4m3, all 1; B: 8 columns, all 1; factors in bytes 1 of A's words and 2 of B's.
    let mut input = vec![0; BYTES];
    input[..4096].fill(0x38);
    input[B..B + 256].fill(0x38);
    let (of_a, of_b) = (8192, 12288);
    for row in 0..128 {
        // Row r in word r / 32 of row r mod 32 of the 32 rows of 16 bytes.
        input[of_a + row % 32 * 16 + row / 32 * 4 + 1] = 120 + (row % 13) as u8;
    }
    for column in 0..8 {
        input[of_b + column * 16 + 2] = 125 + column as u8;
    }
    let tensor = |start, leading, stride| descriptor(start, leading, stride, 0) | 1 << 46;
    // 32 rows in core matrices of 128 bytes, one after the other.
    let (copy_a, copy_b) = (tensor(of_a, 128, 128), tensor(of_b, 128, 128));
    let (a, b) = (tensor(0, 2048, 128), tensor(B, 128, 128));
    let instruction = 1 << 17 | 1 << 23 | 1 << 27 | 1 << 29 | 2 << 4;
    let body = |wait: &str| {
        format!(
            "setp.gt.u32 %p0, %t, 31;\n@%p0 bra READY;\n\
             tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [memory], 32;\n\
             elect.sync _|%p1, 0xffffffff;\n@!%p1 bra READY;\n\
             mbarrier.init.shared::cta.b64 [done], 1;\nfence.mbarrier_init.release.cluster;\n\
             READY:\ntcgen05.fence::before_thread_sync;\nbar.sync 0;\ntcgen05.fence::after_thread_sync;\n\
             ld.shared.u32 %r8, [memory];\n@%p0 bra WAIT;\nelect.sync _|%p1, 0xffffffff;\n@!%p1 bra WAIT;\n\
             add.s32 %r9, %r8, 8;\nadd.s32 %r10, %r8, 16;\nmov.u64 %d1, {copy_a};\nmov.u64 %d2, {copy_b};\n\
             mov.u64 %d3, {a};\nmov.u64 %d4, {b};\nmov.u32 %r11, {instruction};\nsetp.ne.u32 %p2, %t, %t;\n\
             tcgen05.cp.cta_group::1.32x128b.warpx4 [%r9], %d1;\n\
             tcgen05.cp.cta_group::1.32x128b.warpx4 [%r10], %d2;\n\
             tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X [%r8], %d3, %d4, %r11, [%r9], \
             [%r10], %p2;\n\
             tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [done];\n\
             WAIT:\nbar.warp.sync -1;\nPOLL:\n{wait}\n\
             tcgen05.fence::after_thread_sync;\nand.b32 %r12, %t, 96;\nshl.b32 %r12, %r12, 16;\n\
             add.s32 %r12, %r12, %r8;\n\
             tcgen05.ld.sync.aligned.32x32b.x8.b32 {{%r20, %r21, %r22, %r23, %r24, %r25, %r26, %r27}}, [%r12];\n\
             tcgen05.wait::ld.sync.aligned;\n\
             st.global.v4.u32 [%o], {{%r20, %r21, %r22, %r23}};\n\
             st.global.v4.u32 [%o+16], {{%r24, %r25, %r26, %r27}};\n\
             tcgen05.fence::before_thread_sync;\nbar.sync 0;\ntcgen05.fence::after_thread_sync;\n@%p0 bra END;\n\
             tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r8, 32;\nEND:"
        )
    };
    let wait = "mbarrier.try_wait.parity.shared::cta.b64 %p3, [done], 0;\n@!%p3 bra POLL;";
    let words = run(&body(wait), &input).unwrap_or_else(|fault| panic!("{fault}"));
    for row in 0..128 {
        for column in 0..8 {
            let got = f32::from_bits(words[row * 8 + column]);
            let factor = (row % 13) as i32 - 7 + column as i32 - 2;
            assert_eq!(got, 32.0 * 2f32.powi(factor), "row {row}, column {column}");
        }
    }
    // Nobody waits for the product.
    let early = run(&body(""), &input);
    assert!(matches!(early, Err(Fault::Race { .. })), "{early:?}");
}

#[test]
fn registers_and_shared_memory_belong_to_the_tensor_core_until_it_is_done() {
    let (a, b) = (descriptor(0, 1024, 128, 0), descriptor(B, 128, 256, 0));
    let product =
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %d1, %d2, 0, 1, 1, 0, 0;";
    let begin = format!("mov.u64 %d1, {a};\nmov.u64 %d2, {b};\nwgmma.fence.sync.aligned;\n{product}\n");
    let commit = "wgmma.commit_group.sync.aligned;\n";
    let wait = "wgmma.wait_group.sync.aligned 0;\n";
    let store = "st.global.f32 [%o], %f0;\n";
    let outcome = |rest: &[&str]| run(&(begin.clone() + &rest.concat()), &vec![0; BYTES]);
    assert!(outcome(&[commit, wait, store]).is_ok());
    assert!(matches!(outcome(&[commit, store, wait]), Err(Fault::Uninitialised { .. })));
    assert!(matches!(outcome(&[wait, store]), Err(Fault::Uninitialised { .. })));
    assert!(matches!(outcome(&[commit, "mov.f32 %f0, 0f00000000;\n", wait]), Err(Fault::Race { .. })));
    assert!(matches!(outcome(&[commit]), Err(Fault::Race { .. })));
    let overwrite = "mov.u32 %r0, 0;\nst.shared.u32 [%s], %r0;\n";
    assert!(matches!(outcome(&[commit, overwrite, wait]), Err(Fault::Race { .. })));
    assert!(
        matches!(outcome(&[commit, wait, overwrite]), Err(Fault::Race { .. })),
        "other warps may still read"
    );
    assert!(outcome(&[commit, wait, "bar.sync 0;\n", overwrite]).is_ok());
    // Written by threads since the last proxy fence.
    let again = format!("bar.sync 0;\n{overwrite}bar.sync 0;\n");
    let refreshed = format!("bar.sync 0;\n{overwrite}fence.proxy.async.shared::cta;\nbar.sync 0;\n");
    let second = format!("wgmma.fence.sync.aligned;\n{product}\n{commit}{wait}");
    assert!(matches!(outcome(&[commit, wait, &again, &second]), Err(Fault::Race { .. })));
    assert!(outcome(&[commit, wait, &refreshed, &second]).is_ok());
    // One warp of four.
    let one =
        run(&format!("setp.gt.u32 %p0, %t, 31;\n@%p0 bra END;\n{begin}{commit}{wait}END:"), &vec![0; BYTES]);
    assert!(matches!(one, Err(Fault::Divergent { .. })), "{one:?}");
}
