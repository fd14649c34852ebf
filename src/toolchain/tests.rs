//! Looking for ptxas with stub executables, and installing it with a stub pip.

use std::cell::RefCell;
use std::fs;
use std::path::Path;

use super::*;

const ANSWER: &str = "#!/bin/sh\necho 'ptxas: NVIDIA (R) Ptx optimizing assembler'\necho 'Cuda compilation tools, release 13.0, V13.0.88'\n";

fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("has a parent")).expect("folder");
    // Written by a child: were the file open for writing here while another test forks, running it would
    // fail with "text file busy".
    let write = r#"printf %s "$2" > "$1" && chmod 755 "$1""#;
    let done = Command::new("/bin/sh")
        .args(["-c", write, "sh"])
        .arg(path)
        .arg(text)
        .status();
    assert!(done.expect("sh runs").success());
}

fn silent(_: &str) {}

#[test]
fn the_version_is_read_as_ptxas_prints_it() {
    let text = "ptxas: NVIDIA (R) Ptx optimizing assembler\nCopyright (c) 2005-2025 NVIDIA Corporation\nCuda compilation tools, release 13.0, V13.0.88\nBuild cuda_13.0.r13.0/compiler.36424714_0\n";
    assert_eq!(parse_version(text).as_deref(), Some("13.0.88"));
    assert_eq!(parse_version("GNU assembler"), None);
    assert_eq!(parse_version("release candidate"), None);
}

#[test]
fn the_flag_wins_over_the_variable_over_the_toolkit_over_the_path() {
    let root = tempfile::tempdir().expect("tempdir");
    let at = |name: &str| root.path().join(name);
    for name in ["flag", "variable", "kit/bin/ptxas", "path/ptxas"] {
        script(&at(name), &format!("{ANSWER}# {name}\n"));
    }
    let mut places = Places {
        flag: Some(at("flag")),
        variable: Some(at("variable")),
        toolkits: vec![("CUDA_HOME".into(), at("kit"))],
        path: vec![at("empty"), at("path")],
        cache: None,
    };
    let find = |places: &Places| {
        let found = ptxas(places, Network::Forbidden, &silent).expect("found");
        assert_eq!(found.version, "13.0.88");
        found.path
    };
    assert_eq!(find(&places), at("flag"));
    places.flag = None;
    assert_eq!(find(&places), at("variable"));
    places.variable = None;
    assert_eq!(find(&places), at("kit/bin/ptxas"));
    places.toolkits.clear();
    assert_eq!(find(&places), at("path/ptxas"));
}

#[test]
fn a_named_ptxas_that_does_not_work_is_an_error_and_nothing_else_is_tried() {
    let root = tempfile::tempdir().expect("tempdir");
    script(&root.path().join("good/ptxas"), ANSWER);
    script(
        &root.path().join("bad"),
        "#!/bin/sh\necho broken >&2; exit 7\n",
    );
    let places = Places {
        variable: Some(root.path().join("bad")),
        path: vec![root.path().join("good")],
        ..Places::default()
    };
    let error = ptxas(&places, Network::Allowed, &silent)
        .expect_err("bad")
        .to_string();
    assert!(
        error.contains("WARPTREE_PTXAS") && error.contains("broken"),
        "{error}"
    );
}

#[test]
fn one_on_the_path_that_does_not_work_is_passed_over_aloud() {
    let root = tempfile::tempdir().expect("tempdir");
    script(&root.path().join("bad/ptxas"), "#!/bin/sh\nexit 1\n");
    script(&root.path().join("good/ptxas"), ANSWER);
    let said = RefCell::new(Vec::new());
    let places = Places {
        path: vec![root.path().join("bad"), root.path().join("good")],
        ..Places::default()
    };
    let note = |line: &str| said.borrow_mut().push(line.to_owned());
    let found = ptxas(&places, Network::Forbidden, &note).expect("found");
    assert_eq!(found.path, root.path().join("good/ptxas"));
    assert!(
        said.borrow()[0].contains("bad/ptxas"),
        "{:?}",
        said.borrow()
    );
}

#[test]
fn offline_names_every_place_and_what_to_do() {
    let root = tempfile::tempdir().expect("tempdir");
    let places = Places {
        toolkits: vec![("CUDA_HOME".into(), root.path().join("kit"))],
        path: vec![root.path().join("one"), root.path().join("two")],
        cache: Some(root.path().join("cache")),
        ..Places::default()
    };
    let error = ptxas(&places, Network::Forbidden, &silent)
        .expect_err("none")
        .to_string();
    for part in [
        "--ptxas",
        "WARPTREE_PTXAS",
        "CUDA_HOME",
        "kit/bin/ptxas",
        "one/ptxas",
        "two/ptxas",
        "cache/nvidia-cuda-nvcc-13.0.88",
        "pip install --target",
    ] {
        assert!(error.contains(part), "{part} missing in: {error}");
    }
    assert!(
        !root.path().join("cache").exists(),
        "offline writes nothing"
    );
}

#[test]
fn a_whole_installation_in_the_cache_is_used_and_half_of_one_is_not() {
    let root = tempfile::tempdir().expect("tempdir");
    let home = install::folder(root.path());
    let places = Places {
        cache: Some(root.path().to_owned()),
        ..Places::default()
    };
    script(&install::executable(&home), ANSWER);
    let half = ptxas(&places, Network::Forbidden, &silent);
    assert!(
        matches!(half, Err(ToolchainError::Offline { .. })),
        "{half:?}"
    );
    fs::write(home.join(".warptree-complete"), VERSION).expect("writes");
    assert_eq!(
        ptxas(&places, Network::Forbidden, &silent)
            .expect("found")
            .path,
        install::executable(&home)
    );
}

/// A pip that counts its calls and puts a stub where the wheel puts ptxas. `first` runs before.
fn stub_pip(root: &Path, first: &str) -> String {
    let path = root.join("pip");
    let text = format!(
        "#!/bin/sh\necho call >> {calls}\n{first}\nwhile [ \"$1\" != --target ]; do shift; done\nmkdir -p \"$2/nvidia/cu13/bin\"\ncat > \"$2/nvidia/cu13/bin/ptxas\" <<'END'\n{ANSWER}END\nchmod 755 \"$2/nvidia/cu13/bin/ptxas\"\n",
        calls = root.join("calls").display()
    );
    script(&path, &text);
    path.display().to_string()
}

fn calls(root: &Path) -> usize {
    fs::read_to_string(root.join("calls")).map_or(0, |text| text.lines().count())
}

#[test]
fn a_half_finished_installation_is_replaced_and_nothing_is_left_behind() {
    let root = tempfile::tempdir().expect("tempdir");
    let pip = stub_pip(root.path(), "");
    let cache = root.path().join("cache");
    let home = install::folder(&cache);
    script(&install::executable(&home), "#!/bin/sh\nexit 1\n");
    install::install(&cache, &[&["no-such-pip-here"], &[&pip]], &silent).expect("installs");
    assert!(install::complete(&home));
    inspect(&install::executable(&home)).expect("works");
    let mut names: Vec<_> = fs::read_dir(&cache)
        .expect("cache")
        .map(|entry| entry.expect("entry").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["install.lock", "nvidia-cuda-nvcc-13.0.88"]);
}

#[test]
fn an_externally_managed_python_is_asked_once_more_and_only_then() {
    let root = tempfile::tempdir().expect("tempdir");
    let refuse = "case \"$*\" in *--break-system-packages*) ;; *) echo 'error: externally-managed-environment' >&2; exit 1;; esac";
    let pip = stub_pip(root.path(), refuse);
    install::install(&root.path().join("cache"), &[&[&pip]], &silent).expect("installs");
    assert_eq!(calls(root.path()), 2);

    let root = tempfile::tempdir().expect("tempdir");
    let pip = stub_pip(root.path(), "echo 'No matching distribution' >&2; exit 1");
    let error = install::install(&root.path().join("cache"), &[&[&pip]], &silent)
        .expect_err("refuses")
        .to_string();
    assert!(error.contains("No matching distribution"), "{error}");
    assert_eq!(calls(root.path()), 1);
}

#[test]
fn two_at_once_install_once() {
    let root = tempfile::tempdir().expect("tempdir");
    let pip = stub_pip(root.path(), "sleep 0.3");
    let cache = root.path().join("cache");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| install::install(&cache, &[&[&pip]], &silent).expect("installs"));
        }
    });
    assert_eq!(calls(root.path()), 1);
}
