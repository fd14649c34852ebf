//! The report's page. What a model or a tool wrote stays text; and, in a real browser, nothing complains,
//! two thousand nodes move smoothly, and every one of them is reached by the keyboard.
//!
//! The browser's part runs with `WARPTREE_CHROMIUM=/usr/bin/chromium cargo test --test page -- --ignored`;
//! `WARPTREE_SCREENSHOTS=DIR` keeps pictures of it.

#[path = "page/chromium.rs"]
mod chromium;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::json;
use tempfile::TempDir;
use warptree::compare::{Budget, Comparison, Cost, Judged, Method, Remeasured, Series};
use warptree::llm::{
    ChatReply, ChatRequest, Exchange, Finish, Message, Outcome, Speaker, Spent, Usage,
};
use warptree::propose::Ask;
use warptree::report::{RunReport, comparison_page};
use warptree::search::{Expander, Grown, NodeId, Ticket};
use warptree::source::{Point, Setting};
use warptree::store::{Asked, Event, Line, Objects, RootConfig, StoredChild, StoredRun};
use warptree::units::{Digest, Nanos};
use warptree::verdict::{Diagnostic, Severity, Time, TimeRatio, Verdict};

use chromium::Page;

/// What must never become markup.
const HOSTILE: &str =
    "</script></style><img src=x onerror=\"window.broken=1\"><!-- ${7*7} {{ 7*7 }} \u{2028}";

/// Sources of the large run, besides its seed.
const SOURCES: u32 = 1_700;
/// Kernels judged in it.
const KERNELS: u32 = 400;

fn trace(name: &str) -> StoredRun {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("traces/{name}.jsonl.gz"));
    StoredRun::open(&file).expect("a trace of the repository")
}

/// A run with many sources, all of whose texts are hostile, and the exchanges behind two of them.
fn large(sources: u32, kernels: u32) -> (TempDir, StoredRun, Vec<Exchange>) {
    let folder = tempfile::tempdir().expect("a folder");
    let objects = Objects::open(folder.path().join("objects")).expect("objects");
    let measured = trace("softmax-h200")
        .lines
        .into_iter()
        .find_map(|line| match line.event {
            Event::Evaluated { evaluation, .. } => evaluation
                .verdict
                .measurement()
                .is_some()
                .then_some(evaluation),
            _ => None,
        })
        .expect("a measured kernel");
    let mut config = trace("softmax-h200").config;
    let text = |nth: u32| format!("//@ knob A = {nth} in {{{nth}}}\n// {HOSTILE}\n");
    let seed = objects.put(text(0).as_bytes()).expect("put");
    config.roots = vec![RootConfig {
        node: NodeId(1),
        label: "seed".into(),
        source: seed,
        settings: Vec::new(),
        earlier: Vec::new(),
    }];
    let exchange = exchange();
    let mut events = Vec::new();
    for nth in 1..=sources {
        // bushy near the root, chains further down
        let parent = if nth % 3 == 0 {
            1 + nth / 3
        } else {
            1 + nth / 20
        };
        let child = StoredChild {
            label: format!("model: edit {nth} {HOSTILE}"),
            source: objects.put(text(nth).as_bytes()).expect("put"),
            grown: Grown::New {
                node: NodeId(nth + 1),
            },
            settings: Vec::new(),
            rationale: Some(format!("because {HOSTILE}")),
            estimated: TimeRatio::new(0.9),
        };
        events.push(Event::Expanded {
            ticket: Ticket(u64::from(nth)),
            node: NodeId(parent),
            by: Expander::Model,
            children: vec![child],
            asked: Some(Box::new(Asked {
                ask: Ask::LocalEdit,
                spent: Spent::default(),
                exchanges: vec![exchange.hash],
                took_ms: 1,
            })),
        });
    }
    for nth in 1..=kernels {
        let mut evaluation = measured.clone();
        let time = Nanos::new(1e6 / f64::from(nth)).expect("positive");
        if let Verdict::Measured(measurement) = &mut evaluation.verdict {
            measurement.time = Time::Estimated {
                time,
                gpu: "NVIDIA H200".into(),
            };
        }
        if nth % 4 == 0 {
            evaluation.verdict = Verdict::Unassembled {
                diagnostics: vec![Diagnostic {
                    severity: Severity::Error,
                    code: "ptxas".into(),
                    message: HOSTILE.into(),
                    line: Some(1),
                    other_line: None,
                    help: Some(HOSTILE.into()),
                }],
            };
        }
        events.push(Event::Evaluated {
            ticket: Ticket(u64::from(sources + nth)),
            node: NodeId(1 + nth * (sources / kernels.max(1))),
            point: Point(Box::new([0])),
            setting: Setting::new(),
            left_out: Vec::new(),
            best: nth % 4 != 0,
            evaluation,
            kernel: None,
            took_ms: 1,
        });
    }
    events.push(Event::ExpandFailed {
        ticket: Ticket(1_000_000),
        node: NodeId(1),
        by: Expander::Model,
        message: HOSTILE.into(),
        asked: None,
    });
    let lines = (0..).zip(events).map(|(seq, event)| Line {
        seq,
        elapsed_ms: seq,
        event,
    });
    let run = StoredRun {
        folder: folder.path().to_owned(),
        config,
        lines: lines.collect(),
        objects,
    };
    (folder, run, vec![exchange])
}

fn exchange() -> Exchange {
    Exchange {
        version: 1,
        hash: Digest::of("the first edit"),
        occurrence: 0,
        model: "a model".into(),
        request: ChatRequest {
            system: format!("instructions {HOSTILE}"),
            messages: vec![Message {
                speaker: Speaker::User,
                text: format!("prompt {HOSTILE}"),
            }],
            max_output_tokens: None,
            temperature: None,
            sample: 0,
            schema: None,
        },
        outcome: Outcome::Reply(ChatReply {
            text: format!("reply {HOSTILE}"),
            finish: Finish::Stop,
            usage: Usage::default(),
        }),
        duration_ms: 1,
    }
}

/// Two methods, three seeds, ten kernels each.
fn compared() -> Comparison {
    let judged = |method: Method, seed: u64, nth: u64| Judged {
        stage: if nth.is_multiple_of(3) {
            HOSTILE
        } else {
            "measured"
        }
        .to_owned(),
        time: Nanos::new(1e6 / (nth + seed + u64::from(method == Method::Search)) as f64)
            .filter(|_| !nth.is_multiple_of(3)),
        turn: nth as u32 % 4,
        cost: Cost {
            evaluations: nth,
            ..Cost::default()
        },
    };
    let series = [Method::Search, Method::Refine]
        .into_iter()
        .flat_map(|method| (0..3).map(move |seed| (method, seed)))
        .map(|(method, seed)| Series {
            method,
            seed,
            judged: (1..=10).map(|nth| judged(method, seed, nth)).collect(),
            winner: Some(Remeasured {
                time: judged(method, seed, 10).time,
                refuted: 0,
            }),
        });
    Comparison {
        task: HOSTILE.to_owned(),
        gpu: "NVIDIA H200".to_owned(),
        device: "sim:H200".to_owned(),
        model: Some(HOSTILE.to_owned()),
        label: "estimated".to_owned(),
        budget: Budget {
            evaluations: Some(10),
            ..Budget::default()
        },
        baseline: Nanos::new(1.5e5).map(|time| ("seed".to_owned(), time)),
        series: series.collect(),
    }
}

fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let file = folder.join(name);
    fs::write(&file, text).expect("written");
    file
}

#[test]
fn what_others_wrote_never_becomes_markup() {
    let (_folder, run, exchanges) = large(40, 16);
    let report = RunReport::read(&run, &exchanges).expect("it reads");
    let page = report.page().expect("a page");
    assert!(!page.contains("<img"), "an image got into the page");
    let count = |text: &str| page.matches(text).count();
    assert_eq!((count("<script"), count("</script>")), (2, 2));
    assert_eq!((count("<style"), count("</style>")), (1, 1));
    assert!(
        page.contains("\\u003cimg src=x"),
        "the facts hold it as text"
    );
    let svg = report.tree().file();
    assert!(!svg.contains("<img") && svg.contains("&lt;"));
}

#[test]
fn an_edit_is_told_as_a_diff_with_prompt_and_reply() {
    let (_folder, run, exchanges) = large(3, 3);
    let page = RunReport::read(&run, &exchanges).expect("it reads").page();
    let page = page.expect("a page");
    let (_, facts) = page
        .split_once("<script type=\"application/json\" id=\"facts\">")
        .expect("facts");
    let facts = facts.split("</script>").next().expect("their end");
    let facts: serde_json::Value = serde_json::from_str(facts).expect("JSON");
    let first = &facts["sources"][1];
    assert_eq!(
        first["diff"][0],
        json!({"change": "removed", "line": 1, "text": "//@ knob A = 0 in {0}"})
    );
    assert_eq!(
        first["diff"][1],
        json!({"change": "added", "line": 1, "text": "//@ knob A = 1 in {1}"})
    );
    assert_eq!(first["exchanges"], json!([0]));
    let said = &facts["exchanges"][0]["said"];
    let text = |nth: usize| {
        let place = said[nth][1].as_u64().expect("a place") as usize;
        facts["texts"][place].as_str().expect("a text").to_owned()
    };
    assert_eq!(text(0), format!("instructions {HOSTILE}"));
    assert_eq!(text(1), format!("prompt {HOSTILE}"));
    assert_eq!(text(2), format!("reply {HOSTILE}"));
    assert_eq!(facts["failures"][0]["message"], json!(HOSTILE));
}

#[test]
fn a_run_without_a_winner_has_a_page_too() {
    let (_folder, mut run, _) = large(2, 0);
    run.config.baseline = None;
    let report = RunReport::read(&run, &[]).expect("it reads");
    assert!(report.curve().is_none());
    let page = report.page().expect("a page");
    assert!(page.contains("No kernel passed every check"));
}

#[test]
#[ignore = "needs Chromium: WARPTREE_CHROMIUM names it"]
fn in_a_browser() {
    let program = std::env::var_os("WARPTREE_CHROMIUM").expect("WARPTREE_CHROMIUM names Chromium");
    let (folder, run, exchanges) = large(SOURCES, KERNELS);
    let report = RunReport::read(&run, &exchanges).expect("it reads");
    let file = write(folder.path(), "large.html", &report.page().expect("a page"));
    let mut page = Page::start(Path::new(&program));
    page.size(1400, 1000);
    page.open(&file);

    // every node is reached by the keyboard
    page.evaluate(
        "document.getElementById('kernels').checked || document.getElementById('kernels').click()",
    );
    page.evaluate(
        "window.visited = new Set(); new MutationObserver(() => visited.add(tree.dataset.selected)).observe(\
         window.tree = document.getElementById('tree'), {attributes: true, attributeFilter: ['data-selected']});\
         tree.focus()",
    );
    let nodes = 1 + (SOURCES + 1) + KERNELS + 1;
    page.press("*");
    page.press("ArrowDown");
    page.press("Home");
    for _ in 0..nodes {
        page.press("ArrowDown");
    }
    assert_eq!(page.evaluate("visited.size"), json!(nodes));
    let active = page.evaluate(
        "document.getElementById(tree.getAttribute('aria-activedescendant')).getAttribute('role')",
    );
    assert_eq!(active, json!("treeitem"));
    page.press("Home");
    page.press("ArrowRight");
    page.press("Enter");
    let detail = page.evaluate("document.getElementById('detail').textContent");
    assert!(
        detail.as_str().is_some_and(|text| text.contains("seed")),
        "{detail}"
    );
    page.press("Escape");
    page.press("ArrowRight");
    page.press("Enter");
    let detail = page.evaluate("document.getElementById('detail').textContent");
    let detail = detail.as_str().expect("text");
    for part in [
        "prompt </script>",
        "reply </script>",
        "+ //@ knob A = 1 in {1}",
    ] {
        assert!(detail.contains(part), "{part} is missing in {detail}");
    }

    // it moves smoothly, whole and close
    let place = page.evaluate(
        "(() => { tree.scrollIntoView(); const box = document.getElementById('canvas').getBoundingClientRect();\
         return [box.x + box.width / 2, box.y + box.height / 2] })()",
    );
    let (x, y) = (place[0].as_f64().expect("x"), place[1].as_f64().expect("y"));
    for key in ["0", "+"] {
        page.press(key);
        // a busy machine spoils a try, not the page
        let rate = (0..3)
            .map(|_| frames_while_panning(&mut page, x, y))
            .fold(0.0, f64::max);
        println!("{rate} frames a second at {nodes} nodes (key {key})");
        assert!(rate > 30.0, "{rate} frames a second");
    }

    // everything has a name, nothing runs over the edge, both schemes and paper
    let nodes = page.call("Accessibility.getFullAXTree", json!({}));
    for node in nodes["nodes"].as_array().expect("nodes") {
        let role = node["role"]["value"].as_str().unwrap_or_default();
        let named = [
            "button",
            "checkbox",
            "searchbox",
            "tree",
            "treeitem",
            "toolbar",
            "image",
        ];
        if named.contains(&role) && node["ignored"] != json!(true) {
            let name = node["name"]["value"].as_str().unwrap_or_default();
            assert!(!name.is_empty(), "a {role} without a name: {node}");
        }
    }
    page.call(
        "Emulation.setEmulatedMedia",
        json!({"features": [{"name": "prefers-color-scheme", "value": "dark"}]}),
    );
    let ground = "getComputedStyle(document.body).backgroundColor";
    assert_eq!(page.evaluate(ground), json!("rgb(20, 23, 28)"));
    page.call("Emulation.setEmulatedMedia", json!({"media": "print"}));
    assert_eq!(page.evaluate(ground), json!("rgb(255, 255, 255)"));
    let shown =
        "['.graph', '.still'].map(one => getComputedStyle(document.querySelector(one)).display)";
    assert_eq!(page.evaluate(shown), json!(["none", "block"]));
    page.call("Emulation.setEmulatedMedia", json!({"media": ""}));
    assert_eq!(page.evaluate("window.broken === undefined"), json!(true));

    let small = trace("sgemm-h200");
    let report = RunReport::read(&small, &[]).expect("it reads");
    let file = write(folder.path(), "sgemm.html", &report.page().expect("a page"));
    let comparison = comparison_page(&compared()).expect("a page");
    let compared = write(folder.path(), "compared.html", &comparison);
    for (width, height) in [(400, 800), (1400, 1000)] {
        page.size(width, height);
        page.open(&compared);
        assert_eq!(
            page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"),
            json!(true)
        );
        page.open(&file);
        assert_eq!(
            page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"),
            json!(true)
        );
        page.evaluate(
            "document.querySelector('[data-do=winner]').click(); \
             if (innerWidth < 600) document.getElementById('graph').scrollIntoView(); \
             new Promise(done => setTimeout(done, 400))",
        );
        if let Some(folder) = std::env::var_os("WARPTREE_SCREENSHOTS") {
            fs::create_dir_all(&folder).expect("a folder");
            let file = Path::new(&folder).join(format!("report-{width}.png"));
            fs::write(file, page.screenshot()).expect("written");
        }
    }
    assert_eq!(page.complaints, Vec::<String>::new());
}

/// Frames a second while the mouse drags the graph for two seconds.
fn frames_while_panning(page: &mut Page, x: f64, y: f64) -> f64 {
    page.evaluate(
        "window.frames_ = 0; window.until_ = performance.now() + 2000; (function count() { \
         if (performance.now() < until_) { frames_++; requestAnimationFrame(count); } })()",
    );
    page.mouse("mousePressed", x, y, true);
    let started = Instant::now();
    for nth in 0.. {
        if started.elapsed().as_millis() > 2100 {
            break;
        }
        let swing = f64::from(nth % 60) * 3.0;
        page.mouse("mouseMoved", x + swing, y - swing, true);
    }
    page.mouse("mouseReleased", x, y, false);
    page.evaluate("frames_ / 2").as_f64().expect("a rate")
}
