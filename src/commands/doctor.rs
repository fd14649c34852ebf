//! `doctor`: what this machine has and lacks for the work, each with what to do about it.

use serde::Serialize;

use super::{Exit, answer, note};
use crate::cli::Global;
use crate::device::cuda;
use crate::task::Catalogue;
use crate::toolchain::{self, Network, Places};

#[derive(Serialize)]
struct Finding {
    what: &'static str,
    state: State,
    detail: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum State {
    Good,
    /// The program works without it, with less.
    Absent,
    /// Searches cannot run.
    Bad,
}

pub(super) fn run(global: &Global) -> anyhow::Result<Exit> {
    let findings = [tasks(global), assembler(global), gpu()];
    let mut text = String::new();
    for finding in &findings {
        let mark = match finding.state {
            State::Good => "ok",
            State::Absent => "--",
            State::Bad => "!!",
        };
        text.push_str(&format!("{mark}  {:<8} {}\n", finding.what, finding.detail));
    }
    answer(global.json, text, &findings)?;
    let bad = findings.iter().any(|finding| finding.state == State::Bad);
    Ok(if bad { Exit::No } else { Exit::Success })
}

fn tasks(global: &Global) -> Finding {
    let loaded = Catalogue::open(global.tasks.as_deref()).and_then(|catalogue| {
        let names = catalogue.names()?;
        names
            .iter()
            .try_for_each(|name| catalogue.task(name).map(drop))?;
        Ok(names)
    });
    let (state, detail) = match loaded {
        Ok(names) => (State::Good, names.join(", ")),
        Err(error) => (State::Bad, error.to_string()),
    };
    Finding {
        what: "tasks",
        state,
        detail,
    }
}

/// Looks, and installs nothing: a search does that when it needs to.
fn assembler(global: &Global) -> Finding {
    let places = Places::from_environment(global.ptxas.clone());
    let (state, detail) = match toolchain::ptxas(&places, Network::Forbidden, &note) {
        Ok(found) => (
            State::Good,
            format!("{} at {}", found.version, found.path.display()),
        ),
        Err(error) if global.offline => (State::Bad, error.to_string()),
        Err(_) => (
            State::Absent,
            format!(
                "not found; the first search installs {} {} into the cache folder with pip",
                toolchain::PACKAGE,
                toolchain::VERSION
            ),
        ),
    };
    Finding {
        what: "ptxas",
        state,
        detail,
    }
}

fn gpu() -> Finding {
    if !cuda::driver_present() {
        let detail = "no NVIDIA driver: kernels are judged by the simulator, times are estimates";
        return Finding {
            what: "gpu",
            state: State::Absent,
            detail: detail.into(),
        };
    }
    let opened = cuda::WorkerCommand::current()
        .map_err(anyhow::Error::from)
        .and_then(|command| {
            Ok(cuda::CudaDevice::open(
                0,
                command,
                cuda::Options::default(),
            )?)
        });
    let (state, detail) = match opened {
        Ok(device) => {
            let gpu = crate::device::Device::gpu(&device);
            (
                State::Good,
                format!("{} ({}), {} SMs", gpu.name, gpu.arch, gpu.sm_count),
            )
        }
        Err(error) => (State::Absent, error.to_string()),
    };
    Finding {
        what: "gpu",
        state,
        detail,
    }
}
