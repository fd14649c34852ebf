//! Blocks of a cluster that reach each other's shared memory: right where barriers order them, found where one
//! is missing, and where a block ends too early.

use warptree::sim::{FindingKind, Options};

use super::harness::{line_of, options};
use super::hopper::{Kernel, said};

const THREADS: u32 = 64;

/// Two blocks of 64 threads; what a block writes is its rank times 1000 and the thread.
const HEAD: &str = "
.version 8.4
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
    .reg .b32 %tid, %rank, %other, %mine, %place, %there, %value, %base, %old;
    .reg .b64 %out, %at, %state, %wide, %far;
    .reg .pred %p, %first;
    .shared .align 16 .b8 tile[256];
    .shared .align 8 .b8 bar[8];
    ld.param.u64 %out, [out];
    mov.u32 %tid, %tid.x;
    mov.u32 %rank, %cluster_ctarank;
    xor.b32 %other, %rank, 1;
    setp.eq.u32 %first, %tid, 0;
    shl.b32 %mine, %tid, 2;
    mov.u32 %base, tile;
    add.u32 %place, %base, %mine;
    mad.lo.u32 %value, %rank, 1000, %tid;
    mad.lo.u32 %there, %rank, 64, %tid;
    mul.wide.u32 %at, %there, 4;
    add.s64 %out, %out, %at;
    mapa.shared::cluster.u32 %there, %place, %other;
";

/// Each reads what the other block's thread wrote, from the other block.
const READ: &str = "
    st.shared.u32 [%place], %value;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    ld.shared::cluster.u32 %value, [%there];
    barrier.cluster.arrive.aligned; // end
    barrier.cluster.wait.aligned; // end
    st.global.u32 [%out], %value;
    ret;
}
";

/// The same by the first warp alone; the other, whom the barrier then no longer counts, is long about leaving.
const LEAVE: &str = "
    setp.ge.u32 %p, %tid, 32;
    mov.u32 %old, 0;
    @%p bra $OTHERS;
    st.shared.u32 [%place], %value;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    ld.shared::cluster.u32 %value, [%there];
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    st.global.u32 [%out], %value;
    ret;
$OTHERS:
    st.global.u32 [%out], 7;
$LINGER:
    add.u32 %old, %old, 1;
    setp.lt.u32 %p, %old, 200;
    @%p bra $LINGER;
    ret;
}
";

/// The same by a generic address, and the rank that it names.
const GENERIC: &str = "
    st.shared.u32 [%place], %value;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    cvt.u64.u32 %wide, %place;
    cvta.shared.u64 %wide, %wide;
    mapa.u64 %far, %wide, %other;
    getctarank.u64 %old, %far;
    ld.u32 %value, [%far];
    setp.ne.u32 %p, %old, %other;
    @%p mov.u32 %value, 77;
    getctarank.shared::cluster.u32 %old, %there;
    setp.ne.u32 %p, %old, %other;
    @%p mov.u32 %value, 78;
    barrier.cluster.arrive.aligned; // end
    barrier.cluster.wait.aligned; // end
    st.global.u32 [%out], %value;
    ret;
}
";

/// Each writes into the other block.
const WRITE: &str = "
    barrier.cluster.arrive.aligned; // begin
    barrier.cluster.wait.aligned; // begin
    st.shared::cluster.u32 [%there], %value;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    ld.shared.u32 %value, [%place];
    st.global.u32 [%out], %value;
    ret;
}
";

/// All threads of both blocks add to one word of each block.
const ADD: &str = "
    @%first st.shared.u32 [tile], 0;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    mapa.shared::cluster.u32 %there, %base, 0;
    atom.shared::cluster.add.u32 %old, [%there], 1;
    mapa.shared::cluster.u32 %there, %base, 1;
    red.shared::cluster.add.u32 [%there], 2;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    ld.shared.u32 %value, [tile];
    st.global.u32 [%out], %value;
    ret;
}
";

/// Stores into the other block, told by arrivals on an mbarrier there.
const ARRIVE: &str = "
    @%first mbarrier.init.shared::cta.b64 [bar], 64;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    st.shared::cluster.u32 [%there], %value;
    mov.u32 %base, bar;
    mapa.shared::cluster.u32 %there, %base, %other;
    mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%there];
$L:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p, [bar], 0;
    @!%p bra $L;
    ld.shared.u32 %value, [%place];
    st.global.u32 [%out], %value;
    barrier.cluster.arrive.aligned; // end
    barrier.cluster.wait.aligned; // end
    ret;
}
";

/// Asynchronous stores that tell an mbarrier of their bytes.
const SEND: &str = "
    mov.u32 %base, bar;
    mapa.shared::cluster.u32 %old, %base, %other;
    @%first mbarrier.init.shared::cta.b64 [bar], 1;
    @%first fence.mbarrier_init.release.cluster;
    @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 256;
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%there], %value, [%old];
$L:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p, [bar], 0; // wait
    @!%p bra $L; // wait
    ld.shared.u32 %value, [%place];
    st.global.u32 [%out], %value;
    ret;
}
";

fn run(body: &str, seed: u64) -> (Vec<u32>, Vec<warptree::sim::Finding>, String) {
    let text = format!("{HEAD}{body}");
    let mut kernel = Kernel::new(&text);
    let out = kernel.output(u64::from(2 * THREADS) * 4);
    kernel.set("out", &out.to_le_bytes());
    kernel.launch.grid = [2, 1, 1];
    kernel.launch.cluster = [2, 1, 1];
    kernel.launch.block = [THREADS, 1, 1];
    let outcome = kernel.run(&Options { seed, ..options() });
    let bytes = kernel.memory.contents(out).unwrap();
    let words = bytes.chunks_exact(4);
    let words = words.map(|b| u32::from_le_bytes(b.try_into().unwrap()));
    (words.collect(), said(&outcome), text)
}

#[test]
fn ordered_accesses_of_another_block_are_right_in_every_order() {
    let theirs: Vec<u32> = [1, 0]
        .iter()
        .flat_map(|rank| (0..THREADS).map(move |thread| rank * 1000 + thread))
        .collect();
    let halves: Vec<u32> = (theirs.iter().enumerate())
        .map(|(index, &value)| if index % 64 < 32 { value } else { 7 })
        .collect();
    let sums: Vec<u32> = [128, 256].iter().flat_map(|&sum| [sum; 64]).collect();
    for (body, expected) in [
        (READ, &theirs),
        (LEAVE, &halves),
        (GENERIC, &theirs),
        (WRITE, &theirs),
        (ARRIVE, &theirs),
        (SEND, &theirs),
        (ADD, &sums),
    ] {
        for seed in 0..8 {
            let (got, said, text) = run(body, seed);
            assert!(said.is_empty(), "seed {seed}: {said:#?}\n{text}");
            assert_eq!(got, *expected, "seed {seed}: {text}");
        }
    }
}

struct Planted {
    mistake: &'static str,
    kernel: &'static str,
    /// Lines that are left out: those that hold this.
    without: &'static str,
    found: FindingKind,
    at: &'static str,
    other: &'static str,
}

const PLANTED: &[Planted] = &[
    Planted {
        mistake: "no barrier between a store and the other block's load",
        kernel: READ,
        without: "aligned;\n",
        found: FindingKind::MissingBarrier,
        at: "ld.shared::cluster",
        other: "st.shared",
    },
    Planted {
        mistake: "a block that ends while it is read",
        kernel: READ,
        without: "// end",
        found: FindingKind::EarlyRelease,
        at: "ret",
        other: "ld.shared::cluster",
    },
    Planted {
        mistake: "a block that ends while an arrival is on its way to it",
        kernel: ARRIVE,
        without: "try_wait",
        found: FindingKind::EarlyRelease,
        at: "ret",
        other: "mbarrier.arrive",
    },
    Planted {
        mistake: "asynchronous stores not waited for",
        kernel: SEND,
        without: "// wait",
        found: FindingKind::EarlyRelease,
        at: "ret",
        other: "st.async",
    },
];

#[test]
fn planted_mistakes_between_blocks_are_named_with_their_lines() {
    let mut missed = Vec::new();
    for planted in PLANTED {
        let kept: Vec<&str> = (planted.kernel.split_inclusive('\n'))
            .filter(|line| !line.contains(planted.without))
            .collect();
        let mut body = kept.concat();
        if planted.without == "try_wait" {
            body = body
                .replace("@!%p bra $L;", "")
                .replace("barrier.cluster.arrive.aligned; // end", "")
                .replace("barrier.cluster.wait.aligned; // end", "");
        }
        assert_ne!(body, planted.kernel, "{}", planted.mistake);
        let mut named = false;
        let mut all = Vec::new();
        for seed in 0..4 {
            let (_, said, text) = run(&body, seed);
            named |= said.iter().any(|finding| {
                finding.kind == planted.found
                    && [
                        (finding.line, planted.at),
                        (finding.other_line, planted.other),
                    ]
                    .iter()
                    .all(|(line, wanted)| {
                        line.is_some_and(|line| {
                            let found = text.lines().nth(line as usize - 1);
                            found.is_some_and(|found| found.contains(wanted))
                        })
                    })
            });
            all.extend(said);
        }
        if !named {
            missed.push((planted.mistake, all));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn a_block_that_is_not_there_is_told() {
    let body = READ.replace(
        "ld.shared::cluster.u32 %value, [%there];",
        "mapa.shared::cluster.u32 %there, %place, 5;\n    ld.shared::cluster.u32 %value, [%there];",
    );
    let (_, said, text) = run(&body, 0);
    let line = line_of(&text, "ld.shared::cluster");
    assert!(
        said.iter()
            .any(|f| f.kind == FindingKind::OutOfBounds && f.line == line),
        "{said:#?}"
    );
}
