//! Small programs, each for one thing that is easy to get wrong.

use crate::{Arena, Counts, Fault, Launch, Memory, Module, launch};

/// A module of one entry `test` with one pointer parameter, already in `%out`.
fn text(body: &str) -> String {
    format!(
        ".version 7.0\n.target sm_80\n.address_size 64\n\
         .const .align 4 .b8 table[8] = {{10, 11, 12, 13, 14, 15, 16, 17}};\n\
         .visible .entry test(\n.param .u64 test_param_0\n)\n.maxntid 256, 1, 1\n{{\n\
         .reg .pred %p<9>;\n.reg .b16 %h<9>;\n.reg .b32 %r<40>;\n.reg .f32 %f<9>;\n.reg .b64 %d<20>;\n.reg .b64 %out;\n\
         .shared .align 16 .b8 buffer[256];\n\
         ld.param.u64 %out, [test_param_0];\ncvta.to.global.u64 %out, %out;\n{body}\nret;\n}}\n"
    )
}

/// Runs the body with 64 threads or as many as said, and gives 64 words from `%out`.
fn run_with(body: &str, block: [u32; 3], limit: u64) -> Result<(Vec<u32>, Counts), Fault> {
    let module = Module::parse(&text(body)).unwrap();
    let mut arena = Arena::new();
    let out = arena.alloc(256);
    let params = [out.to_le_bytes().to_vec()];
    let settings = Launch { grid: [1, 1, 1], block, shared_bytes: 0, params: &params, limit };
    let counts = launch(module.entry("test").unwrap(), &settings, &mut arena)?;
    let bytes = arena.bytes(out).unwrap();
    Ok((bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect(), counts))
}

fn run(body: &str) -> Result<(Vec<u32>, Counts), Fault> {
    run_with(body, [64, 1, 1], 10_000)
}

/// `%r0` is the thread, `%d0` the address of its word.
const INDEX: &str = "mov.u32 %r0, %tid.x;\nmul.wide.u32 %d0, %r0, 4;\nadd.s64 %d0, %out, %d0;\n";

/// What each thread stores of `%r1`.
fn each(body: &str) -> Vec<u32> {
    run(&format!("{INDEX}{body}\nst.global.u32 [%d0], %r1;")).unwrap_or_else(|fault| panic!("{fault}")).0
}

fn fault(body: &str) -> Fault {
    run(&format!("{INDEX}{body}")).expect_err("the program has a fault")
}

#[test]
fn lanes_part_and_meet_again() {
    // Odd threads go one way; then the whole warp votes together, which it must have met for.
    let words = each(
        "and.b32 %r2, %r0, 1;\nsetp.eq.s32 %p1, %r2, 0;\n@%p1 bra EVEN;\nmov.u32 %r1, 100;\nbra.uni MEET;\n\
         EVEN:\nmov.u32 %r1, 200;\nMEET:\nvote.sync.ballot.b32 %r3, %p1, 0xffffffff;\nadd.s32 %r1, %r1, %r0;\n\
         popc.b32 %r3, %r3;\nadd.s32 %r1, %r1, %r3;",
    );
    let wanted: Vec<u32> = (0..64).map(|t| t + 16 + if t % 2 == 0 { 200 } else { 100 }).collect();
    assert_eq!(words, wanted);
    // Each lane's own number of trips.
    let words =
        each("mov.u32 %r1, 0;\nLOOP:\nadd.s32 %r1, %r1, 3;\nsetp.lt.u32 %p1, %r1, %r0;\n@%p1 bra LOOP;");
    assert_eq!(words, (0..64_u32).map(|t| t.max(1).div_ceil(3) * 3).collect::<Vec<_>>());
    // Half of the lanes end early.
    let (words, _) = run(&format!(
        "{INDEX}setp.lt.u32 %p1, %r0, 40;\n@%p1 exit;\nmov.u32 %r1, %r0;\nst.global.u32 [%d0], %r1;"
    ))
    .unwrap();
    assert_eq!(words, (0..64).map(|t| if t < 40 { 0 } else { t }).collect::<Vec<_>>());
}

#[test]
fn lanes_see_one_another() {
    let sum = "mov.u32 %r1, %r0;\nmov.u32 %r3, 16;\nLOOP:\n\
               shfl.sync.bfly.b32 %r2|%p2, %r1, %r3, 31, -1;\nadd.s32 %r1, %r1, %r2;\nshr.u32 %r3, %r3, 1;\n\
               setp.ne.s32 %p1, %r3, 0;\n@%p1 bra LOOP;";
    let first: u32 = (0..32).sum();
    assert_eq!(each(sum), [[first; 32], [first + 32 * 32; 32]].concat());
    assert_eq!(each("redux.sync.max.u32 %r1, %r0, -1;"), [[31; 32], [63; 32]].concat());
    assert_eq!(
        each("setp.gt.u32 %p1, %r0, 31;\nvote.sync.any.pred %p2, %p1, -1;\nselp.u32 %r1, 7, -1, %p2;"),
        [[u32::MAX; 32], [7; 32]].concat()
    );
    assert_eq!(each("mov.u32 %r1, %lanemask_lt;")[31..34], [u32::MAX >> 1, 0, 1]);
    let members = each(
        "and.b32 %r2, %r0, 3;\nsetp.ne.s32 %p1, %r2, 0;\nmov.u32 %r1, 0;\n@%p1 bra DONE;\n\
                        activemask.b32 %r1;\nDONE:",
    );
    assert_eq!(members[..5], [0x1111_1111, 0, 0, 0, 0x1111_1111]);
}

#[test]
fn warps_pass_values_through_shared_memory() {
    let exchange =
        "mov.u32 %r2, buffer;\nshl.b32 %r3, %r0, 2;\nadd.s32 %r4, %r2, %r3;\nst.shared.u32 [%r4], %r0;\n";
    let read = "xor.b32 %r3, %r3, 252;\nadd.s32 %r4, %r2, %r3;\nld.shared.u32 %r1, [%r4];";
    assert_eq!(each(&format!("{exchange}bar.sync 0;\n{read}")), (0..64).rev().collect::<Vec<_>>());
    let race = fault(&format!("{exchange}{read}"));
    assert!(matches!(race, Fault::Race { .. }), "{race}");
    // The same by generic addresses.
    let generic = "mov.u64 %d1, buffer;\ncvta.shared.u64 %d1, %d1;\nmul.wide.u32 %d2, %r0, 4;\n\
                   add.s64 %d2, %d1, %d2;\nst.u32 [%d2], %r0;\nld.u32 %r1, [%d2];\nadd.s32 %r1, %r1, 1;";
    assert_eq!(each(generic), (1..65).collect::<Vec<_>>());
    let atomic = "mov.u32 %r2, buffer;\nsetp.eq.s32 %p1, %r0, 0;\n@%p1 st.shared.u32 [buffer+4], 0;\nbar.sync 0;\n\
                  atom.shared.add.u32 %r3, [%r2+4], 2;\nbar.sync 0;\nld.shared.u32 %r1, [buffer+4];";
    assert_eq!(each(atomic), [128; 64]);
    // A warp that has ended does not keep the others waiting.
    let (words, _) = run(&format!(
        "{INDEX}setp.lt.u32 %p1, %r0, 32;\n@%p1 bra END;\nbar.sync 0;\nst.global.u32 [%d0], %r0;\nEND:"
    ))
    .unwrap();
    assert_eq!(words[32..], (32..64).collect::<Vec<_>>());
}

#[test]
fn words_are_packed_split_and_looked_up() {
    let words = each(
        "cvt.u16.u32 %h1, %r0;\nmov.u16 %h2, 7;\nmov.b32 %r2, {%h1, %h2};\nmov.b32 {%h3, %h4}, %r2;\n\
         mov.b64 %d1, {%r2, %r0};\nmov.b64 {_, %r3}, %d1;\ncvt.u32.u16 %r4, %h4;\nadd.s32 %r1, %r3, %r4;",
    );
    assert_eq!(words, (7..71).collect::<Vec<_>>());
    let words = each(
        "and.b32 %r2, %r0, 7;\ncvt.u64.u32 %d1, %r2;\nmov.u64 %d2, table;\nadd.s64 %d1, %d2, %d1;\n\
         ld.const.u8 %r1, [%d1];",
    );
    assert_eq!(words, (0..64).map(|t| 10 + t % 8).collect::<Vec<_>>());
    let local = "{\n.local .align 8 .b8 depot[16];\n.reg .b64 %SP;\nmov.u64 %SP, depot;\nst.local.v2.u32 [%SP+8], {%r0, 5};\n\
                 cvta.local.u64 %SP, %SP;\nld.u32 %r1, [%SP+8];\n}";
    assert_eq!(each(local), (0..64).collect::<Vec<_>>());
    // Inner names hide outer ones.
    assert_eq!(each("mov.u32 %r1, 1;\n{\n.reg .b32 %r1;\nmov.u32 %r1, 2;\n}"), [1; 64]);
}

#[test]
fn predicates_join_and_guard() {
    let words = each(
        "setp.lt.u32 %p1, %r0, 10;\nsetp.gt.and.u32 %p2|%p3, %r0, 5, %p1;\nnot.pred %p4, %p2;\n\
         and.pred %p5, %p4, %p1;\nmov.u32 %r1, 0;\n@%p2 add.s32 %r1, %r1, 1;\n@!%p1 add.s32 %r1, %r1, 2;\n\
         @%p3 add.s32 %r1, %r1, 4;\n@%p5 add.s32 %r1, %r1, 8;",
    );
    let wanted: Vec<u32> = (0..64_u32)
        .map(|t| u32::from(t > 5 && t < 10) + if t >= 10 { 2 } else { 0 } + if t <= 5 { 4 + 8 } else { 0 })
        .collect();
    assert_eq!(words, wanted);
}

#[test]
fn threads_of_a_block_are_counted_x_first() {
    let body = "mov.u32 %r1, %tid.x;\nmov.u32 %r2, %tid.y;\nmov.u32 %r3, %tid.z;\nmov.u32 %r4, %ntid.x;\n\
                mov.u32 %r5, %ntid.y;\nmad.lo.s32 %r6, %r3, %r5, %r2;\nmad.lo.s32 %r6, %r6, %r4, %r1;\n\
                mul.wide.u32 %d0, %r6, 4;\nadd.s64 %d0, %out, %d0;\nmov.u32 %r7, %warpid;\nmov.u32 %r8, %laneid;\n\
                mad.lo.s32 %r7, %r7, 32, %r8;\nst.global.u32 [%d0], %r7;";
    let (words, counts) = run_with(body, [5, 3, 2], 1000).unwrap();
    assert_eq!(words[..30], (0..30).collect::<Vec<_>>());
    assert_eq!(counts.global_written, 120);
    assert_eq!(counts.longest_warp, 16);
}

#[test]
fn bytes_and_operations_are_counted() {
    let (_, counts) = run(&format!(
        "{INDEX}mov.f32 %f1, 0f3F800000;\nfma.rn.f32 %f1, %f1, %f1, %f1;\nadd.f32 %f1, %f1, %f1;\nmov.u32 %r1, 0;\n\
         add.rn.f16x2 %r2, %r1, %r1;\nfma.rn.f16x2 %r2, %r1, %r1, %r1;\nld.global.u32 %r3, [%d0];\n\
         ld.global.v4.u32 {{%r4, %r5, %r6, %r7}}, [%out];\nst.global.u32 [%d0], %r3;"
    ))
    .unwrap();
    assert_eq!(counts.fma_flops, 64 * (2 + 1 + 2 + 4));
    // Sixteen bytes for all lanes of a warp are sixteen bytes.
    assert_eq!(counts.global_read, 64 * 4 + 2 * 16);
    assert_eq!(counts.global_written, 64 * 4);
    assert_eq!(counts.warp_instructions, 2 * (2 + 3 + 9 + 1));
    let (words, _) = run(&format!(
        "{INDEX}mov.u64 %d1, %clock64;\nmov.u64 %d2, %clock64;\nsub.s64 %d1, %d2, %d1;\n\
                                   cvt.u32.u64 %r1, %d1;\nst.global.u32 [%d0], %r1;"
    ))
    .unwrap();
    assert_eq!(words, [1; 64]);
}

#[test]
fn faults_name_the_instruction_and_the_thread() {
    let misaligned = fault("ld.global.v2.u32 {%r1, %r2}, [%d0];");
    assert!(matches!(misaligned, Fault::Misaligned { bytes: 8, .. }), "{misaligned}");
    let words = misaligned.to_string();
    for part in ["test, line", "`ld.global.v2.u32 {%r1, %r2}, [%d0]`", "thread [1, 0, 0]", "8 bytes"] {
        assert!(words.contains(part), "{words}");
    }
    let outside = fault("ld.global.u32 %r1, [%d0+4];");
    assert!(
        matches!(outside, Fault::Memory { .. }) && outside.to_string().contains("thread [32, 0, 0]"),
        "{outside}"
    );
    let unwritten = fault("setp.lt.u32 %p1, %r0, 3;\n@%p1 mov.u32 %r1, 5;\nst.global.u32 [%d0], %r1;");
    assert!(
        matches!(unwritten, Fault::Uninitialised { .. }) && unwritten.to_string().contains("%r1"),
        "{unwritten}"
    );
    let apart = fault("setp.lt.u32 %p1, %r0, 3;\n@%p1 bra SKIP;\nvote.sync.ballot.b32 %r1, %p1, -1;\nSKIP:");
    assert!(matches!(apart, Fault::Divergent { .. }), "{apart}");
    let half = fault("setp.lt.u32 %p1, %r0, 16;\n@%p1 bra SKIP;\nbar.sync 0;\nSKIP:");
    assert!(matches!(half, Fault::Divergent { .. }), "{half}");
    let unknown = fault("wgmma.mma_async.sp.sync.aligned;");
    assert!(
        matches!(&unknown, Fault::Unsupported { instruction, .. } if instruction.contains("wgmma.mma_async.sp")),
        "{unknown}"
    );
    let endless = fault("LOOP:\nbra LOOP;");
    assert!(matches!(endless, Fault::Timeout { limit: 10_000, .. }), "{endless}");
    let apart =
        fault("setp.lt.u32 %p1, %r0, 32;\n@%p1 bra FIRST;\nbar.sync 1;\nbra END;\nFIRST:\nbar.sync 2;\nEND:");
    assert!(
        matches!(apart, Fault::Divergent { .. }) && apart.to_string().contains("wait for each other"),
        "{apart}"
    );
}

#[test]
fn launches_that_do_not_fit_are_refused() {
    let module = Module::parse(&text("")).unwrap();
    let entry = module.entry("test").unwrap();
    assert_eq!((module.version(), module.target()), ((7, 0), "sm_80"));
    assert_eq!((entry.params()[0].name.as_str(), entry.params()[0].bytes), ("test_param_0", 8));
    let good = [vec![0; 8]];
    let refused = |grid, block, shared_bytes, params: &[Vec<u8>]| {
        let settings = Launch { grid, block, shared_bytes, params, limit: 100 };
        matches!(launch(entry, &settings, &mut Arena::new()), Err(Fault::Params(_)))
    };
    assert!(refused([1; 3], [32, 1, 1], 0, &[]));
    assert!(refused([1; 3], [32, 1, 1], 0, &[vec![0; 4]]));
    assert!(refused([1; 3], [1025, 1, 1], 0, &good));
    assert!(refused([1; 3], [u32::MAX; 3], 0, &good));
    assert!(refused([0, 1, 1], [32, 1, 1], 0, &good));
    assert!(refused([1; 3], [32, 1, 1], 1 << 20, &good));
    assert!(!refused([1; 3], [32, 1, 1], 0, &good));
}

#[test]
fn texts_that_are_not_ptx_are_refused_with_their_line() {
    let whole = text("add.s32 %r1, %r1, 1;");
    // Cut anywhere, it is an error and no panic; so is any byte lost.
    for end in 0..whole.len() {
        let _ = Module::parse(&whole[..end]);
        let _ = Module::parse(&format!("{}{}", &whole[..end], &whole[end + 1..]));
    }
    let error = Module::parse(&whole.replace("%r1, 1;", "%r1, 1")).err().unwrap();
    assert!(error.line > 10 && error.to_string().contains("`;` is missing"), "{error}");
    assert!(Module::parse("").is_err());
    assert!(Module::parse(&whole.replace("%r<40>", "%r<4000000000>")).is_err());
    assert!(Module::parse(&whole.replace("table[8]", "table[80000000000]")).is_err());
    assert!(Module::parse(&whole.replace("%d<20>", "%%r<20>")).is_ok());
}

/// One m16n8k16 of halves by the names of its fragments: A is the row number where the columns meet, B the column's.
#[test]
fn mma_fragments_lie_as_the_isa_says() {
    let module = Module::parse(
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry test(.param .u64 a, .param .u64 b, .param .u64 c)\n{\n\
         .reg .b32 %r<9>;\n.reg .f32 %f<9>;\n.reg .b64 %d<9>;\nld.param.u64 %d1, [a];\nld.param.u64 %d2, [b];\n\
         ld.param.u64 %d3, [c];\nmov.u32 %r0, %tid.x;\nmul.wide.u32 %d4, %r0, 16;\nmul.wide.u32 %d5, %r0, 8;\n\
         add.s64 %d1, %d1, %d4;\nadd.s64 %d2, %d2, %d5;\nadd.s64 %d3, %d3, %d4;\n\
         ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d1];\nld.global.v2.u32 {%r5, %r6}, [%d2];\nmov.f32 %f0, 0f3F000000;\n\
         mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, \
         {%f0, %f0, %f0, %f0};\nst.global.v4.f32 [%d3], {%f1, %f2, %f3, %f4};\nret;\n}\n",
    )
    .unwrap();
    let left = |row: usize, column: usize| (row * 3 + column * 5 % 7) as f32 - 20.0;
    let right = |row: usize, column: usize| (row * 2 + column * column) as f32 - 11.0;
    let half = |value: f32| half::f16::from_f32(value).to_le_bytes();
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for lane in 0..32 {
        let (group, member) = (lane / 4, lane % 4);
        // a0 .. a7 and b0 .. b3 of the ISA's tables.
        for i in 0..8 {
            let row = if matches!(i, 0 | 1 | 4 | 5) { group } else { group + 8 };
            let column = member * 2 + i % 2 + if i < 4 { 0 } else { 8 };
            a.extend(half(left(row, column)));
        }
        for i in 0..4 {
            b.extend(half(right(member * 2 + i % 2 + if i < 2 { 0 } else { 8 }, group)));
        }
    }
    let mut arena = Arena::new();
    let places = [arena.place(&a), arena.place(&b), arena.alloc(512)];
    let params = places.map(|place| place.to_le_bytes().to_vec());
    let settings = Launch { grid: [1; 3], block: [32, 1, 1], shared_bytes: 0, params: &params, limit: 100 };
    let counts = launch(module.entry("test").unwrap(), &settings, &mut arena).unwrap();
    assert_eq!(counts.mma_flops["f16"], 2 * 16 * 8 * 16);
    for lane in 0..32 {
        for i in 0..4 {
            let (row, column) = (lane / 4 + if i < 2 { 0 } else { 8 }, lane % 4 * 2 + i % 2);
            let mut word = [0; 4];
            arena.read(places[2] + (lane * 16 + i * 4) as u64, &mut word).unwrap();
            let wanted: f32 = (0..16).map(|at| left(row, at) * right(at, column)).sum();
            assert_eq!(f32::from_le_bytes(word), wanted + 0.5, "row {row}, column {column}");
        }
    }
}
