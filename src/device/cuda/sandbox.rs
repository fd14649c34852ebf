//! What the worker gives up once its context stands: a model wrote the code it runs. GPU code reaches no
//! system call by itself; this is for what a driver bug might open. It says what is enforced, and what not.

/// Enforced, and not enforced here; both in words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Enforced {
    /// In force for this process from now on.
    pub enforced: Vec<String>,
    /// Wanted, but this system does not do it.
    pub missing: Vec<String>,
}

/// Drops what is not needed after initialisation. Threads that exist already (the driver's own) are
/// included only where the kernel can.
pub fn enforce() -> Enforced {
    let mut told = Enforced::default();
    let no_core = rustix::process::Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    match rustix::process::setrlimit(rustix::process::Resource::Core, no_core) {
        Ok(()) => told.enforced.push("no core dumps".to_owned()),
        Err(e) => told.missing.push(format!("no core dumps: {e}")),
    }
    restrict(&mut told);
    told
}

#[cfg(target_os = "linux")]
fn restrict(told: &mut Enforced) {
    use landlock::{
        ABI, Access, AccessFs, AccessNet, PathBeneath, PathFd, Ruleset, RulesetAttr,
        RulesetCreatedAttr, RulesetStatus, Scope,
    };
    const WHAT: &str = "no writes, new files or programs outside /dev, no TCP, no signals or abstract \
                        sockets to other processes (landlock)";
    // what is newer than the kernel is left out by the crate, and then told as partial
    let abi = ABI::V6;
    let restrict = || -> Result<RulesetStatus, Box<dyn std::error::Error>> {
        let denied = AccessFs::from_write(abi) | AccessFs::Execute;
        let devices = AccessFs::WriteFile | AccessFs::IoctlDev;
        let status = Ruleset::default()
            .handle_access(denied)?
            .handle_access(AccessNet::from_all(abi))?
            .scope(Scope::from_all(abi))?
            .create()?
            .add_rule(PathBeneath::new(PathFd::new("/dev")?, devices))?
            .restrict_self()?;
        Ok(status.ruleset)
    };
    match restrict() {
        Ok(RulesetStatus::FullyEnforced) => told.enforced.push(WHAT.to_owned()),
        Ok(RulesetStatus::PartiallyEnforced) => {
            told.enforced
                .push(format!("as much of this as the kernel knows: {WHAT}"));
        }
        Ok(RulesetStatus::NotEnforced) => {
            told.missing
                .push(format!("{WHAT}: the kernel does not have it"));
        }
        Err(e) => told.missing.push(format!("{WHAT}: {e}")),
    }
}

#[cfg(not(target_os = "linux"))]
fn restrict(told: &mut Enforced) {
    told.missing
        .push("file and network limits: only on Linux".to_owned());
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// A thread can be restricted by itself, so the rest of the test program stays free.
    #[test]
    fn a_restricted_thread_writes_no_file_and_starts_no_program() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("written");
        let (told, wrote, started, device) = std::thread::scope(|scope| {
            let restricted = scope.spawn(|| {
                let told = enforce();
                let wrote = std::fs::write(&path, b"x");
                let started = std::process::Command::new("/bin/true").status();
                let device = std::fs::write("/dev/null", b"x");
                (told, wrote, started, device)
            });
            restricted.join().expect("no panic")
        });
        device.expect("device files stay open for writing: the driver needs them");
        let landlocked = told.enforced.iter().any(|what| what.contains("landlock"));
        assert_eq!(landlocked, wrote.is_err(), "what is told is so: {told:?}");
        assert_eq!(landlocked, started.is_err(), "what is told is so: {told:?}");
        std::fs::write(&path, b"x").expect("other threads are free");
    }
}
