//! Copies beside the threads that started them, as Ampere has them: what orders them, and what is found where
//! that is missing.

use super::harness::*;
use warptree::sim::FindingKind;

/// Each block reverses two lots of 256 inputs, the second while the first is read, in two stages.
const REVERSE: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out)
{
    .reg .b32 %tid, %tile, %mine, %theirs;
    .reg .b64 %in, %out, %offset;
    .reg .f32 %f;
    .shared .align 16 .b8 tile[2048];
    ld.param.u64 %in, [in];
    ld.param.u64 %out, [out];
    mov.u32 %tid, %tid.x;
    mul.wide.u32 %offset, %tid, 4;
    add.s64 %in, %in, %offset;
    add.s64 %out, %out, %offset;
    mov.u32 %tile, tile;
    shl.b32 %mine, %tid, 2;
    sub.u32 %theirs, %tile, %mine;
    add.u32 %mine, %tile, %mine;
    cp.async.ca.shared.global [%mine], [%in], 4;
    cp.async.commit_group;
    cp.async.ca.shared.global [%mine+1024], [%in+1024], 4;
    cp.async.commit_group;
    cp.async.wait_group 1;
    bar.sync 0;
    ld.shared.f32 %f, [%theirs+1020];
    st.global.f32 [%out], %f;
    bar.sync 1;
    cp.async.ca.shared.global [%mine], [%in+2048], 4;
    cp.async.commit_group;
    cp.async.wait_group 0;
    bar.sync 2;
    ld.shared.f32 %f, [%theirs+2044];
    st.global.f32 [%out+1024], %f;
    ld.shared.f32 %f, [%theirs+1020];
    st.global.f32 [%out+2048], %f;
    ret;
}
";

struct Planted {
    mistake: &'static str,
    text: &'static str,
    by: &'static str,
    found: FindingKind,
    /// What stands on both lines.
    at: [&'static str; 2],
}

const COPY: &str = "cp.async.ca";
const LOAD: &str = "ld.shared";

const PLANTED: [Planted; 6] = [
    Planted {
        mistake: "the first stage not waited for",
        text: "    cp.async.wait_group 1;\n",
        by: "",
        found: FindingKind::AsyncNotWaited,
        at: [LOAD, COPY],
    },
    Planted {
        mistake: "one group too many left under way",
        text: "cp.async.wait_group 1;",
        by: "cp.async.wait_group 2;",
        found: FindingKind::AsyncNotWaited,
        at: [LOAD, COPY],
    },
    Planted {
        mistake: "a copy that belongs to no group",
        text: "[%in+2048], 4;\n    cp.async.commit_group;",
        by: "[%in+2048], 4;",
        found: FindingKind::AsyncNotWaited,
        at: [LOAD, COPY],
    },
    Planted {
        mistake: "no barrier after waiting: other threads' copies are not waited for",
        text: "    bar.sync 0;\n",
        by: "",
        found: FindingKind::AsyncNotWaited,
        at: [LOAD, COPY],
    },
    Planted {
        mistake: "the stage filled again while other warps read it",
        text: "    bar.sync 1;\n",
        by: "",
        found: FindingKind::EarlyRelease,
        at: [COPY, LOAD],
    },
    Planted {
        mistake: "a barrier before waiting",
        text: "    cp.async.wait_group 0;\n    bar.sync 2;",
        by: "    bar.sync 2;\n    cp.async.wait_group 0;",
        found: FindingKind::AsyncNotWaited,
        at: [LOAD, COPY],
    },
];

fn reversed(ptx: &str) -> Run {
    let data = numbers(768, 1);
    run(
        ptx,
        &shape(1, 256),
        vec![input_f32(&data), output(3072)],
        &[],
    )
}

#[test]
fn copies_that_are_waited_for_are_right_and_nothing_is_found() {
    let run = reversed(REVERSE);
    run.clean();
    let data = numbers(768, 1);
    // The second lot, then the third where the first was.
    let lots = [&data[..256], &data[256..512], &data[512..]];
    let expected: Vec<f32> = lots
        .iter()
        .flat_map(|lot| lot.iter().rev().copied())
        .collect();
    assert_eq!(run.f32s(1), expected);
}

#[test]
fn planted_mistakes_of_copies_are_named_with_their_lines() {
    let mut missed = Vec::new();
    for planted in &PLANTED {
        assert!(REVERSE.contains(planted.text), "{}", planted.mistake);
        let ptx = REVERSE.replace(planted.text, planted.by);
        let found = reversed(&ptx).outcome.findings;
        let stands = |line: Option<u32>, wanted: &str| {
            line.and_then(|line| ptx.lines().nth(line as usize - 1))
                .is_some_and(|text| text.contains(wanted))
        };
        let named = found.iter().any(|finding| {
            finding.kind == planted.found
                && stands(finding.line, planted.at[0])
                && stands(finding.other_line, planted.at[1])
        });
        if !named {
            missed.push((planted.mistake, found));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
