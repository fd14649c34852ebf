//! ncu without ncu: planted and captured output through a stub, line numbers of real machine code, metric
//! names against NVIDIA's own tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use warptree::device::cuda::WorkerCommand;
use warptree::device::{Buffer, Contents, Gpu, Job};
use warptree::evaluate::profile::{
    LineMap, MetricSet, NcuError, NotProfiled, Profile, Profiler, Subject, diagnose, parse,
};
use warptree::ptx::ir::Module;
use warptree::source::{Argument, DType, Launch, LaunchPlan};
use warptree::toolchain::Found;
use warptree::units::{Bytes, SmArch};

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/profile")
        .join(name)
}

const ENTRY: &str = ".version 8.0\n.target sm_90a\n.address_size 64\n\
                     .visible .entry k(.param .u64 x)\n{\n  ret;\n}\n\
                     .visible .entry first(.param .u64 x)\n{\n  ret;\n}\n\
                     .visible .entry transpose(.param .u64 x)\n{\n  ret;\n}\n";

pub fn h200() -> Gpu {
    Gpu::default()
}

pub fn plan(entry: &str, launches: usize) -> LaunchPlan {
    let launch = Launch {
        entry: entry.into(),
        grid: [1056, 1, 1],
        block: [256, 1, 1],
        smem: Bytes(0),
        cluster: [1; 3],
        args: vec![Argument::Buffer("x".into())],
    };
    LaunchPlan {
        launches: vec![launch; launches],
        workspaces: Vec::new(),
        tensor_maps: Vec::new(),
    }
}

/// A folder with an `ncu` in it: what it writes to its log, what its runner reports, how it ends.
pub struct Stub {
    folder: tempfile::TempDir,
    module: Module,
}

impl Stub {
    pub fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            module: warptree::ptx::parse(ENTRY).unwrap(),
        }
    }

    /// `runs`: log, report and exit code of each run in turn; the last goes on for ever.
    pub fn profiler(&self, runs: &[(String, &str, u32)]) -> Profiler {
        let folder = self.folder.path();
        for (nth, (log, report, code)) in runs.iter().enumerate() {
            fs::write(folder.join(format!("{nth}.log")), log).unwrap();
            fs::write(folder.join(format!("{nth}.report")), report).unwrap();
            fs::write(folder.join(format!("{nth}.code")), code.to_string()).unwrap();
        }
        let last = runs.len() - 1;
        let script = format!(
            "#!/bin/sh\ncd {}\nn=$(cat turn 2>/dev/null || echo 0)\n[ $n -gt {last} ] && n={last}\n\
             echo $((n+1)) > turn\necho \"$@\" >> asked\n\
             while [ $# -gt 0 ]; do case $1 in --log-file) cp $n.log $2;; --report) cp $n.report $2;; esac; shift; done\n\
             exit $(cat $n.code)\n",
            folder.display()
        );
        let path = folder.join("ncu");
        fs::write(&path, script).unwrap();
        let mut mode = fs::metadata(&path).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
        fs::set_permissions(&path, mode).unwrap();
        let ncu = Found {
            path,
            version: "2025.3.1.0".into(),
        };
        let runner = WorkerCommand {
            program: "warptree".into(),
            arguments: vec!["replay-calls".into()],
        };
        Profiler::new(ncu, runner)
    }

    pub fn asked(&self) -> Vec<String> {
        let asked = fs::read_to_string(self.folder.path().join("asked")).unwrap_or_default();
        asked.lines().map(str::to_owned).collect()
    }

    pub fn profile(
        &self,
        profiler: &Profiler,
        calls: &[usize],
        gpu: &Gpu,
    ) -> Vec<Result<Profile, NotProfiled>> {
        let plans: Vec<LaunchPlan> = calls.iter().map(|launches| plan("k", *launches)).collect();
        self.profile_plans(profiler, &plans, gpu, None)
    }

    pub fn profile_plans(
        &self,
        profiler: &Profiler,
        plans: &[LaunchPlan],
        gpu: &Gpu,
        lines: Option<&LineMap>,
    ) -> Vec<Result<Profile, NotProfiled>> {
        let buffers = [Buffer {
            name: "x".into(),
            dtype: DType::F32,
            bytes: Bytes(4096),
            writable: true,
            contents: Contents::Fill(0),
        }];
        let subjects: Vec<Subject<'_>> = plans
            .iter()
            .map(|plan| Subject {
                job: Job {
                    module: &self.module,
                    cubin: Some(b"\x7fELF"),
                    registers: &[],
                    plan,
                    buffers: &buffers,
                    sampled: &[],
                    order: 0,
                },
                lines,
            })
            .collect();
        profiler.profile(0, gpu, &subjects).unwrap()
    }
}

pub const ENDED: &str = r#"{"done":9,"failed":null,"ended":true}"#;

pub fn log(rows: &[&[(&str, &str)]]) -> String {
    log_of("k", "(1056, 1, 1)", "(256, 1, 1)", rows)
}

/// Rows of ncu for GH100 with every metric at 1 (tensor operations at 0) but those given.
pub fn log_of(kernel: &str, grid: &str, block: &str, rows: &[&[(&str, &str)]]) -> String {
    let set = MetricSet::of(SmArch::SM_90A).unwrap();
    let mut metrics: Vec<&str> = set.hardware();
    metrics.extend(set.derived());
    let by_address = set.by_address();
    metrics.extend(by_address.iter().map(String::as_str));
    let fixed = ["ID", "Process ID", "Kernel Name", "Block Size", "Grid Size"];
    let quoted = |fields: &[String]| {
        let fields: Vec<String> = fields.iter().map(|field| format!("\"{field}\"")).collect();
        fields.join(",") + "\n"
    };
    let header: Vec<String> = fixed
        .iter()
        .chain(&metrics)
        .map(|s| (*s).to_owned())
        .collect();
    let mut text = "==PROF== Connected to process 12 (/usr/bin/warptree)\n".to_owned();
    text.push_str("==PROF== Profiling \"k\" - 0: 0%....50%....100% - 13 passes\n");
    text.push_str("==PROF== Disconnected from process 12\n");
    text.push_str(&quoted(&header));
    text.push_str(&quoted(&vec![String::new(); header.len()]));
    for (id, given) in rows.iter().enumerate() {
        let given: BTreeMap<&str, &str> = given.iter().copied().collect();
        let value = |name: &str| -> String {
            let default = match name {
                "ID" => return id.to_string(),
                "Kernel Name" => kernel,
                "Block Size" => block,
                "Grid Size" => grid,
                "sass__inst_executed_per_opcode" => "300 (FADD: 100; FFMA: 200)",
                "gpu__time_duration.sum" => "100,000.0",
                _ if name.starts_with("sm__ops_path") => "0",
                _ => "1",
            };
            (*given.get(name).unwrap_or(&default)).to_owned()
        };
        let row: Vec<String> = header.iter().map(|name| value(name)).collect();
        text.push_str(&quoted(&row));
    }
    text
}

pub const QUIET: &[(&str, &str)] = &[
    ("sm__cycles_active.avg", "950"),
    ("sm__cycles_elapsed.max", "1000"),
    ("launch__waves_per_multiprocessor", "8"),
    ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "4000"),
    ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", "1000"),
    ("launch__occupancy_limit_registers", "4"),
    ("launch__occupancy_limit_shared_mem", "16"),
    ("launch__occupancy_limit_warps", "8"),
    ("launch__occupancy_limit_blocks", "32"),
];

pub fn with<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    QUIET.iter().chain(more).copied().collect()
}

/// What ncu 2025.3.1.0 wrote of a kernel on an H200.
pub fn captured(name: &str) -> String {
    fs::read_to_string(data(&format!("2025.3.1.0/{name}.log"))).unwrap()
}

pub fn transpose(grid: [u32; 3], block: [u32; 3]) -> LaunchPlan {
    let mut plan = plan("transpose", 1);
    plan.launches[0].grid = grid;
    plan.launches[0].block = block;
    plan
}

#[test]
fn captured_numbers_with_separators_are_read() {
    let rows = parse(&captured("separators")).unwrap();
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!(
        (row.kernel.as_str(), row.grid, row.block),
        ("race", Some([4, 1, 1]), Some([256, 1, 1]))
    );
    assert_eq!(row.value("gpu__time_duration.sum"), Some(2_176.0));
    assert_eq!(row.value("inst_executed"), Some(512.0));
    assert_eq!(row.instances("inst_executed").len(), 16);
    assert_eq!(
        row.value("device__attribute_display_name"),
        None,
        "no number"
    );
    let opcodes = row.instances("sass__inst_executed_per_opcode");
    assert_eq!(opcodes[0], ("LEA".to_owned(), 64.0));
    assert_eq!(opcodes.iter().map(|(_, n)| n).sum::<f64>(), 512.0);
}

/// This version leaves out a metric that it does not know, and says nothing.
#[test]
fn a_metric_that_ncu_leaves_out_in_silence_is_missed() {
    let rows = parse(&captured("unknown-metric")).unwrap();
    assert_eq!(rows[0].value("no__such_metric.sum"), None);
    let without = |names: &[&str]| {
        let stub = Stub::new();
        let log = captured("bank-conflicts");
        let log = names
            .iter()
            .fold(log, |log, name| log.replace(name, "left_out"));
        let profiler = stub.profiler(&[(log, ENDED, 0)]);
        let plan = transpose([256, 512, 1], [32, 32, 1]);
        let map = lines_of("bank-conflicts");
        stub.profile_plans(&profiler, &[plan], &h200(), Some(&map))
            .remove(0)
    };
    let error = without(&["lts__t_sectors_lookup_hit.sum"]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ncu gave no value for lts__t_sectors_lookup_hit.sum"
    );
    let profile = without(&["\"inst_executed\""]).unwrap();
    assert_eq!(profile.missing, ["lines of conflicts and stalls"]);
    let found = diagnose(&profile, &h200(), &[]);
    assert!(found.evidence.iter().all(|e| e.line.is_none()));
}

/// Names that this ncu lists for each chip: what is asked, and the families it belongs to. Samples by
/// address (`pcsamp`) are in none of its lists; GH100 has them.
#[test]
fn every_metric_is_listed_by_ncu_for_its_chip() {
    let lists = fs::read_to_string(data("2025.3.1.0/metric-names.txt")).unwrap();
    for set in MetricSet::all() {
        let chip = set.chip.name.to_lowercase();
        let known: BTreeSet<&str> = lists
            .lines()
            .map(|line| line.split(' '))
            .filter(|line| line.clone().skip(1).any(|listed| listed == chip))
            .filter_map(|mut line| line.next())
            .collect();
        let mut asked: Vec<String> = set.hardware().into_iter().map(str::to_owned).collect();
        asked.extend(set.derived().into_iter().map(str::to_owned));
        asked.extend(set.by_address());
        let unknown: Vec<&String> = asked
            .iter()
            .filter(|name| !name.contains("__pcsamp_"))
            .filter(|name| !known.contains(name.split('.').next().unwrap_or(name)))
            .collect();
        assert!(unknown.is_empty(), "{chip}: {unknown:?}");
    }
}

#[test]
fn counts_are_sums_over_the_launches_of_a_call() {
    let fma = "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum";
    let rows: &[&[(&str, &str)]] = &[
        &[(fma, "1,000,000"), ("dram__bytes_read.sum", "4096")],
        &[(fma, "500"), ("dram__bytes_read.sum", "1000")],
    ];
    let stub = Stub::new();
    let profiler = stub.profiler(&[(log(rows), ENDED, 0)]);
    let profile = stub.profile(&profiler, &[2], &h200()).remove(0).unwrap();
    assert_eq!(profile.dram_read(), Bytes(5096));
    let flops = profile.flops();
    let fp32 = flops.iter().find(|(unit, _)| unit == "fp32").unwrap();
    // one addition and one multiplication beside them in each launch
    assert_eq!(fp32.1.0, 2.0 * 1_000_500.0 + 4.0);
}

#[test]
fn a_batch_is_one_run_and_one_that_breaks_costs_only_itself() {
    let stub = Stub::new();
    let broke = r#"{"done":1,"failed":"CUDA_ERROR_ILLEGAL_ADDRESS (700)","ended":false}"#;
    let profiler = stub.profiler(&[(log(&[&[]]), broke, 1), (log(&[&[], &[]]), ENDED, 0)]);
    let profiles = stub.profile(&profiler, &[1, 1, 1, 1], &h200());
    assert_eq!(stub.asked().len(), 2);
    assert!(profiles[0].is_ok() && profiles[2].is_ok() && profiles[3].is_ok());
    assert!(
        matches!(&profiles[1], Err(NotProfiled::Call(text)) if text.contains("700")),
        "{:?}",
        profiles[1]
    );
    let asked = &stub.asked()[0];
    for part in [
        "--csv --page raw",
        "--cache-control all",
        "--clock-control none",
        "--replay-mode kernel",
        "warptree replay-calls",
    ] {
        assert!(asked.contains(part), "{part} missing in {asked}");
    }
}

#[test]
fn counters_that_are_not_permitted_are_said_with_the_fix() {
    let stub = Stub::new();
    let said = fs::read_to_string(data("written/not-permitted.log")).unwrap();
    let profiler = stub.profiler(&[(said, ENDED, 1)]);
    let profiles = stub.profile(&profiler, &[1, 1], &h200());
    assert_eq!(stub.asked().len(), 1, "asking again changes nothing");
    for profile in profiles {
        let error = profile.unwrap_err();
        assert_eq!(error, NotProfiled::Ncu(NcuError::NotPermitted));
        assert!(
            error
                .to_string()
                .contains("NVreg_RestrictProfilingToAdminUsers=0")
        );
    }
}

#[test]
fn a_kernel_that_breaks_under_replay_is_tried_with_the_whole_program_replayed() {
    let stub = Stub::new();
    let said = fs::read_to_string(data("written/replay-700.log")).unwrap();
    let profiler = stub.profiler(&[(said, ENDED, 1), (log(&[&[]]), ENDED, 0)]);
    let profiles = stub.profile(&profiler, &[1], &h200());
    assert!(profiles[0].is_ok(), "{:?}", profiles[0]);
    assert!(stub.asked()[1].contains("--replay-mode application"));
}

#[test]
fn what_does_not_belong_to_the_call_is_no_profile() {
    type Case = (
        &'static [&'static [(&'static str, &'static str)]],
        &'static str,
    );
    let cases: &[Case] = &[
        (&[&[("Kernel Name", "other")]], "`other`"),
        (&[&[("Grid Size", "(7, 1, 1)")]], "grid"),
        (&[&[], &[]], "more than there were launches"),
        (
            &[&[("dram__bytes_read.sum", "n/a")]],
            "dram__bytes_read.sum",
        ),
        (
            &[&[("sass__inst_executed_per_opcode", "300")]],
            "per_opcode",
        ),
    ];
    for (rows, words) in cases {
        let stub = Stub::new();
        let profiler = stub.profiler(&[(log(rows), ENDED, 0)]);
        let error = stub
            .profile(&profiler, &[1], &h200())
            .remove(0)
            .unwrap_err();
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
}

fn line_map() -> LineMap {
    lines_of("lines")
}

pub fn lines_of(kernel: &str) -> LineMap {
    let read = |end: &str| fs::read(data(&format!("lines/{kernel}{end}"))).unwrap();
    LineMap::new(&read(".cubin"), &read("-lineinfo.cubin")).unwrap()
}

#[test]
fn values_by_address_name_the_line() {
    // where ld.shared, of 8-way conflicts, and bar.sync stand in the machine code of `first`
    let running = fs::read(data("lines/lines.cubin")).unwrap();
    let base = 0x7f00_0000_0000u64;
    let at = |opcode: u16| {
        let code = code(&running, ".text.first");
        base + code.iter().find(|(_, found)| *found == opcode).unwrap().0
    };
    let (load, barrier) = (at(0x984), at(0xb1d));
    let executed = format!("30 ({base:#x}: 10; {load:#x}: 10; {barrier:#x}: 10)");
    let wavefronts = format!("90 ({load:#x}: 80; {barrier:#x}: 10)");
    let ideal = format!("20 ({load:#x}: 10; {barrier:#x}: 10)");
    let waiting = format!("12 ({base:#x}: 2; {barrier:#x}: 10)");
    let given = with(&[
        ("inst_executed", &executed),
        ("memory_l1_wavefronts_shared", &wavefronts),
        ("memory_l1_wavefronts_shared_ideal", &ideal),
        ("smsp__pcsamp_warps_issue_stalled_barrier", &waiting),
        ("smsp__warps_issue_stalled_barrier.sum", "80"),
        ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", "80"),
        (
            "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
            "70",
        ),
        (
            "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed",
            "25",
        ),
    ]);
    let log = log_of("first", "(1056, 1, 1)", "(256, 1, 1)", &[&given]);
    let stub = Stub::new();
    let profiler = stub.profiler(&[(log, ENDED, 0)]);
    let map = line_map();
    let profiles = stub.profile_plans(&profiler, &[plan("first", 1)], &h200(), Some(&map));
    let found = diagnose(profiles[0].as_ref().unwrap(), &h200(), &[]);
    let text = fs::read_to_string(data("lines/lines.ptx")).unwrap();
    let quoted = |words: &str| {
        let evidence = found
            .evidence
            .iter()
            .find(|e| e.text.contains(words))
            .unwrap();
        text.lines()
            .nth(evidence.line.unwrap() as usize - 1)
            .unwrap()
    };
    assert!(quoted("conflict 8-way").contains("ld.shared"));
    assert!(quoted("of stalls: barrier").contains("bar.sync"));
}

#[test]
fn an_ncu_that_does_not_know_values_by_address_profiles_without_lines() {
    let stub = Stub::new();
    let unknown = "==ERROR== Failed to find metric memory_l1_wavefronts_shared\n".to_owned();
    let kept = stub.folder.path().join("kept");
    let profiler = stub
        .profiler(&[(unknown, ENDED, 1), (log(&[&[]]), ENDED, 0)])
        .keeping(kept.clone());
    let map = line_map();
    let profiles = stub.profile_plans(&profiler, &[plan("k", 1)], &h200(), Some(&map));
    let profile = profiles[0].as_ref().unwrap();
    assert_eq!(profile.missing, ["lines of conflicts and stalls"]);
    assert!(stub.asked()[0].contains("memory_l1_wavefronts_shared"));
    assert!(!stub.asked()[1].contains("memory_l1_wavefronts_shared"));
    assert!(kept.join("ncu-0.log").exists() && kept.join("ncu-1.log").exists());
}

#[test]
fn an_architecture_without_counters_is_named() {
    let stub = Stub::new();
    let profiler = stub.profiler(&[(String::new(), ENDED, 0)]);
    let mut gpu = h200();
    gpu.arch = "sm_75".parse().unwrap();
    let error = stub.profile(&profiler, &[1], &gpu).remove(0).unwrap_err();
    assert!(error.to_string().contains("sm_75"));
    assert!(stub.asked().is_empty());
}

/// Opcodes of sm_90 (the low 12 bits of an instruction) and what the line that they come from must say.
const OPCODES: &[(u16, &str)] = &[
    (0x388, "st.shared"),
    (0x984, "ld.shared"),
    (0x981, "ld.global"),
    (0x986, "st.global"),
    (0x223, "fma.rn"),
    (0x220, "mul.rn"),
    (0xb1d, "bar.sync"),
];

#[test]
fn machine_code_is_traced_to_its_line() {
    let running = fs::read(data("lines/lines.cubin")).unwrap();
    let text = fs::read_to_string(data("lines/lines.ptx")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let map = line_map();
    for (entry, expected) in [("first", 6), ("second", 3)] {
        let mut seen = 0;
        for (offset, opcode) in code(&running, &format!(".text.{entry}")) {
            let Some((_, words)) = OPCODES.iter().find(|(known, _)| *known == opcode) else {
                continue;
            };
            let line = map.line(entry, offset).unwrap();
            let quoted = lines[line as usize - 1];
            assert!(
                quoted.contains(words),
                "{entry}+{offset:#x} {words}: {line} {quoted}"
            );
            seen += 1;
        }
        assert!(seen >= expected, "{entry}: {seen} instructions told apart");
    }
    assert_eq!(map.line("third", 0), None);
}

#[test]
fn a_cubin_with_other_code_gives_no_lines() {
    let running = fs::read(data("lines/lines.cubin")).unwrap();
    let described = fs::read(data("lines/lines-lineinfo.cubin")).unwrap();
    let mut other = running.clone();
    let at = section(&running, ".text.second").unwrap().0 + 16;
    other[at] ^= 1;
    assert_eq!(LineMap::new(&other, &described), None);
    assert_eq!(LineMap::new(&running, &running), None, "it has no lines");
    for length in (0..described.len()).step_by(97) {
        // cut short it may give nothing, but never breaks
        let _cut = LineMap::new(&running, &described[..length]);
    }
}

fn number(bytes: &[u8], at: usize, width: usize) -> usize {
    bytes[at..at + width]
        .iter()
        .rev()
        .fold(0, |n, &b| n << 8 | usize::from(b))
}

/// Offset and length of a section.
fn section(elf: &[u8], name: &str) -> Option<(usize, usize)> {
    let table = number(elf, 0x28, 8);
    let header = |index: usize| table + index * number(elf, 0x3a, 2);
    let names = number(elf, header(number(elf, 0x3e, 2)) + 0x18, 8);
    (0..number(elf, 0x3c, 2)).find_map(|index| {
        let start = names + number(elf, header(index), 4);
        let found = elf[start..].starts_with(name.as_bytes()) && elf[start + name.len()] == 0;
        let place = |at| number(elf, header(index) + at, 8);
        found.then(|| (place(0x18), place(0x20)))
    })
}

/// Offset and opcode of each instruction.
fn code(elf: &[u8], name: &str) -> Vec<(u64, u16)> {
    let (start, length) = section(elf, name).unwrap();
    let offsets = (0..length).step_by(16);
    offsets
        .map(|offset| {
            let word = number(elf, start + offset, 2) as u16;
            (offset as u64, word & 0xfff)
        })
        .collect()
}

/// Needs `libnvperf_host.so` of the PyPI package nvidia-cuda-cupti==13.0.85 in WARPTREE_NVPERF, and python3;
/// no GPU.
#[test]
#[ignore = "needs NVIDIA's tables: WARPTREE_NVPERF=…/libnvperf_host.so"]
fn metric_names_are_those_of_nvidias_tables() {
    let library = std::env::var("WARPTREE_NVPERF").unwrap();
    for set in MetricSet::all() {
        let mut child = Command::new("python3")
            .args([data("metric_names.py").as_os_str(), library.as_ref()])
            .args([&set.chip.name, "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let names = set.hardware().join("\n") + "\nno__such_metric.sum\n";
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), names.as_bytes()).unwrap();
        let done = child.wait_with_output().unwrap();
        let unknown = String::from_utf8(done.stdout).unwrap();
        assert_eq!(unknown, "no__such_metric.sum\n", "{}", set.chip.name);
    }
}
