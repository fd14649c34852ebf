//! Mistakes planted in a kernel that is right: each is named, with the lines of both accesses.

use warptree::sim::{Finding, FindingKind, Options};

use super::harness::options;
use super::hopper::{Sizes, gemm, lab, product, said};

struct Planted {
    mistake: &'static str,
    /// What is replaced, each time it stands there, and by what.
    text: &'static str,
    by: &'static str,
    found: FindingKind,
    /// What stands on the finding's line, and on its other line.
    at: &'static str,
    other: &'static str,
}

const LOAD: &str = "cp.async.bulk.tensor.2d.shared::cluster";
const STORE: &str = "cp.async.bulk.tensor.2d.global";

const PLANTED: &[Planted] = &[
    Planted {
        mistake: "no proxy fence between stmatrix and the bulk store",
        text: "fence.proxy.async.shared::cta;",
        by: "",
        found: FindingKind::MissingProxyFence,
        at: STORE,
        other: "stmatrix",
    },
    Planted {
        mistake: "no barrier between stmatrix and the bulk store",
        text: "fence.proxy.async.shared::cta;\n\tbar.sync %t0, 128;",
        by: "fence.proxy.async.shared::cta;",
        found: FindingKind::MissingBarrier,
        at: STORE,
        other: "stmatrix",
    },
    Planted {
        mistake: "no barrier after the mbarriers' initialisation",
        text: "L1:\n\tbar.sync 0;",
        by: "L1:",
        found: FindingKind::MissingBarrier,
        at: "mbarrier.",
        other: "mbarrier.init",
    },
    Planted {
        mistake: "initialised mbarriers not made known",
        text: "fence.mbarrier_init.release.cluster;",
        by: "",
        found: FindingKind::MissingInitFence,
        at: LOAD,
        other: "mbarrier.init",
    },
    Planted {
        mistake: "more bytes announced than come",
        text: "_, [%fb], 32768;",
        by: "_, [%fb], 32784;",
        found: FindingKind::Deadlock,
        at: "try_wait",
        other: "mbarrier.init",
    },
    Planted {
        mistake: "fewer bytes announced than come",
        text: "_, [%fb], 32768;",
        by: "_, [%fb], 16384;",
        found: FindingKind::Deadlock,
        at: "try_wait",
        other: "mbarrier.init",
    },
    Planted {
        mistake: "the consumers begin with the wrong parity",
        text: "mov.u32 %ph, 0;",
        by: "mov.u32 %ph, 1;",
        found: FindingKind::Deadlock,
        at: "try_wait",
        other: "mbarrier.init",
    },
    Planted {
        mistake: "the ring's parity never flips for the consumers",
        text: "@%p1 xor.b32 %ph, %ph, 1;\n\tadd.u32 %kb",
        by: "add.u32 %kb",
        found: FindingKind::Deadlock,
        at: "try_wait",
        other: "mbarrier.init",
    },
    Planted {
        mistake: "consumers that do not wait for their tiles",
        text: "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %pw, [%fb], %ph;",
        by: "setp.eq.u32 %pw, 0, 0;",
        found: FindingKind::AsyncNotWaited,
        at: "wgmma.mma_async",
        other: LOAD,
    },
    Planted {
        mistake: "a stage given back while products read it",
        text: "wgmma.wait_group.sync.aligned 0;",
        by: "wgmma.wait_group.sync.aligned 1;",
        found: FindingKind::EarlyRelease,
        at: LOAD,
        other: "wgmma.mma_async",
    },
    Planted {
        mistake: "accumulators read before the products are waited for",
        text: "wgmma.wait_group.sync.aligned 0;",
        by: "wgmma.wait_group.sync.aligned 1;",
        found: FindingKind::AsyncNotWaited,
        at: "cvt.rn.bf16x2.f32",
        other: "wgmma.mma_async",
    },
    Planted {
        mistake: "products never committed",
        text: "wgmma.commit_group.sync.aligned;",
        by: "",
        found: FindingKind::AsyncNotWaited,
        at: "cvt.rn.bf16x2.f32",
        other: "wgmma.mma_async",
    },
    Planted {
        mistake: "a producer that does not wait for empty stages",
        text: "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 %pw, [%eb], %ph;",
        by: "setp.eq.u32 %pw, 0, 0;",
        found: FindingKind::EarlyRelease,
        at: LOAD,
        other: "wgmma.mma_async",
    },
    Planted {
        mistake: "stages that nobody gives back",
        text: "@%p2 mbarrier.arrive.shared::cta.b64 _, [%t0];",
        by: "",
        found: FindingKind::Deadlock,
        at: "try_wait",
        other: "mbarrier.init",
    },
    Planted {
        mistake: "one arrival too many wanted",
        text: "], 2;",
        by: "], 3;",
        found: FindingKind::Deadlock,
        at: "try_wait",
        other: "mbarrier.init",
    },
    Planted {
        mistake: "more arrivals than the mbarrier counts",
        text: "], 2;",
        by: "], 1;",
        found: FindingKind::Deadlock,
        at: "try_wait",
        other: "mbarrier.init",
    },
    Planted {
        mistake: "more registers than the block has",
        text: "setmaxnreg.inc.sync.aligned.u32 240;",
        by: "setmaxnreg.inc.sync.aligned.u32 248;",
        found: FindingKind::Deadlock,
        at: "setmaxnreg.inc",
        other: "",
    },
    Planted {
        mistake: "descriptors of another swizzle than the copies'",
        text: "or.b64 %dbase, %dbase, 4611686293305360384;",
        by: "or.b64 %dbase, %dbase, 0x8000004000010000;",
        found: FindingKind::SwizzleMismatch,
        at: "wgmma.mma_async",
        other: LOAD,
    },
    Planted {
        mistake: "the buffer of C overwritten while it is stored",
        text: "@%p4 cp.async.bulk.wait_group.read 1;",
        by: "",
        found: FindingKind::EarlyRelease,
        at: "stmatrix",
        other: STORE,
    },
    Planted {
        mistake: "the end not held back for the stores",
        text: "@%p4 cp.async.bulk.wait_group 0;",
        by: "",
        found: FindingKind::EarlyRelease,
        at: "ret;",
        other: STORE,
    },
    Planted {
        mistake: "a box at an address that is no multiple of 128",
        text: "mad.lo.u32 %t0, %s, 32768, %sm;",
        by: "mad.lo.u32 %t0, %s, 32768, %sm;\n\tadd.u32 %t0, %t0, 64;",
        found: FindingKind::Misaligned,
        at: LOAD,
        other: "",
    },
    Planted {
        mistake: "a box to store that begins before the tensor",
        text: "add.u32 %ox, %col, 0;",
        by: "add.u32 %ox, %col, -64;",
        found: FindingKind::OutOfBounds,
        at: STORE,
        other: "",
    },
    Planted {
        mistake: "an mbarrier that was never initialised",
        text: "mbarrier.init.shared::cta.b64 [smem+131088], 1;",
        by: "",
        found: FindingKind::BadMbarrier,
        at: "try_wait",
        other: "",
    },
    Planted {
        mistake: "an operand outside shared memory",
        text: "or.b64 %dbase, %dbase, 4611686293305360384;",
        by: "or.b64 %dbase, %dbase, 4611686293305373184;",
        found: FindingKind::OutOfBounds,
        at: "wgmma.mma_async",
        other: "",
    },
    Planted {
        mistake: "an accumulator cleared with no fence before the product",
        text: "wgmma.fence.sync.aligned;",
        by: "mov.f32 %d0, 0f00000000;",
        found: FindingKind::MissingProductFence,
        at: "wgmma.mma_async",
        other: "mov.f32 %d0",
    },
    Planted {
        mistake: "a product in a branch that one warp does not take",
        text: "wgmma.fence.sync.aligned;",
        by: "setp.eq.u32 %p1, %tx, 200;\n\t@%p1 bra $skip;\n\twgmma.fence.sync.aligned;",
        found: FindingKind::DivergentBarrier,
        at: "wgmma.mma_async",
        other: "",
    },
];

/// Mistakes of two blocks that share each other's copies.
struct Shared {
    mistake: &'static str,
    edits: &'static [(&'static str, &'static str)],
    found: FindingKind,
    at: &'static str,
    other: &'static str,
}

const MULTICAST: &str = "multicast::cluster";

const SHARED: &[Shared] = &[
    Shared {
        mistake: "stages given back to the own producer only, while the other's copies go into them too",
        edits: &[
            ("%rem0, %ad, %t5;", "%rem0, %ad, %rank;"),
            ("setp.lt.u32 %p3, %t5, 2;", "setp.lt.u32 %p3, %t5, 1;"),
            ("], 4;", "], 2;"),
        ],
        found: FindingKind::EarlyRelease,
        at: MULTICAST,
        other: "wgmma.mma_async",
    },
    Shared {
        mistake: "a copy for both that goes to one",
        edits: &[("mov.u16 %mask, 3;", "mov.u16 %mask, 1;")],
        found: FindingKind::Deadlock,
        at: "try_wait",
        other: "mbarrier.init",
    },
    Shared {
        mistake: "only the own copies' bytes announced",
        edits: &[("_, [%fb], 49152;", "_, [%fb], 32768;")],
        found: FindingKind::AsyncNotWaited,
        at: "wgmma.mma_async",
        other: MULTICAST,
    },
    Shared {
        mistake: "arrivals from one block where two are counted",
        edits: &[("setp.lt.u32 %p3, %t5, 2;", "setp.lt.u32 %p3, %t5, 1;")],
        found: FindingKind::Deadlock,
        at: "try_wait",
        other: "mbarrier.init",
    },
    Shared {
        mistake: "blocks that end while the other still reaches for them",
        edits: &[(
            "END3:\n\tbarrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;",
            "END3:",
        )],
        found: FindingKind::EarlyRelease,
        at: "ret;",
        other: "mbarrier.arrive.shared::cluster",
    },
    Shared {
        mistake: "copies into a block that may not have begun",
        edits: &[(
            "bar.sync 0;\n\tbarrier.cluster.arrive.release;\n\tbarrier.cluster.wait.acquire;",
            "bar.sync 0;",
        )],
        found: FindingKind::MissingBarrier,
        at: MULTICAST,
        other: "mbarrier.init",
    },
    Shared {
        mistake: "an innermost coordinate that is no multiple of 16 bytes",
        edits: &[("add.u32 %t4, %t4, 64;", "add.u32 %t4, %t4, 60;")],
        found: FindingKind::Misaligned,
        at: LOAD,
        other: "",
    },
];

#[test]
fn mistakes_of_blocks_that_share_copies_are_named_with_their_lines() {
    let kernel = lab("gemm_cluster_b");
    let sizes = Sizes {
        m: 256,
        n: 256,
        k: 448,
        blocks: 2,
    };
    let mut missed = Vec::new();
    for shared in SHARED {
        let mut text = kernel.text.to_owned();
        for (before, after) in shared.edits {
            assert!(text.contains(before), "{}: no `{before}`", shared.mistake);
            text = text.replace(before, after);
        }
        let planted = Planted {
            mistake: shared.mistake,
            text: "",
            by: "",
            found: shared.found,
            at: shared.at,
            other: shared.other,
        };
        let named = (0..4).any(|seed| {
            let options = Options { seed, ..options() };
            let (_, outcome, _) = product(kernel, &text, &sizes, &options);
            said(&outcome)
                .iter()
                .any(|finding| names(finding, &text, &planted))
        });
        if !named {
            let (_, outcome, _) = product(kernel, &text, &sizes, &options());
            missed.push((shared.mistake, said(&outcome)));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

fn names(finding: &Finding, text: &str, planted: &Planted) -> bool {
    let stands = |line: Option<u32>, wanted: &str| match line {
        Some(line) => {
            let found = text.lines().nth(line as usize - 1);
            found.is_some_and(|found| found.contains(wanted))
        }
        None => wanted.is_empty(),
    };
    finding.kind == planted.found
        && stands(finding.line, planted.at)
        && stands(finding.other_line, planted.other)
}

#[test]
fn planted_mistakes_are_named_with_their_lines() {
    let kernel = lab("gemm_roll");
    let sizes = Sizes {
        m: 128,
        n: 256,
        k: 320,
        blocks: 1,
    };
    let mut missed = Vec::new();
    for planted in PLANTED {
        let mistake = planted.mistake;
        assert!(
            kernel.text.contains(planted.text),
            "{mistake}: no such text"
        );
        let mut text = kernel.text.replace(planted.text, planted.by);
        if planted.by.contains("$skip") {
            let wait = "wgmma.wait_group.sync.aligned 0;";
            text = text.replace(wait, &format!("{wait}\n$skip:"));
        }
        let (_, said, ..) = gemm(kernel, &text, &sizes);
        if !said.iter().any(|finding| names(finding, &text, planted)) {
            missed.push((mistake, said));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
