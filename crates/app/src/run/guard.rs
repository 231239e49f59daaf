//! A helper process that ends what a killed run leaves behind.
//!
//! A run that is killed by SIGKILL, or with its terminal, cannot end its attempts, and a later run
//! on the same journal would start them a second time beside the first. So the run writes the
//! process group of every attempt to the pipe of a helper, and takes it back at its end. When the
//! pipe closes, the helper ends the groups that are left: SIGTERM, then SIGKILL. Without `unsafe`
//! there is no way to have the kernel do that.

use std::collections::BTreeSet;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use super::process::KILL_AFTER;

/// The run's end of the pipe.
#[derive(Debug)]
pub(super) struct Guard(Mutex<ChildStdin>);

impl Guard {
    /// Starts the helper, whose `command` calls [`guard_processes`].
    pub(super) fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let stdin = child.stdin.take();
        let stdin = stdin.ok_or_else(|| io::Error::other("the helper has no stdin"))?;
        Ok(Self(Mutex::new(stdin)))
    }

    pub(super) fn add(&self, group: Pid) {
        self.write(format!("+{}\n", group.as_raw_nonzero()));
    }

    pub(super) fn remove(&self, group: Pid) {
        self.write(format!("-{}\n", group.as_raw_nonzero()));
    }

    /// A helper that was killed guards nothing; the run goes on without it.
    fn write(&self, line: String) {
        let mut stdin = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        _ = stdin.write_all(line.as_bytes());
    }
}

/// Ends the process groups that `input` added and did not remove, when it is at its end.
pub fn guard_processes(input: impl BufRead) {
    let mut groups = BTreeSet::new();
    for line in input.lines().map_while(Result::ok) {
        let Some(pid) = line.get(1..).and_then(|pid| pid.parse().ok()) else {
            continue;
        };
        match line.as_bytes().first() {
            Some(b'+') => _ = groups.insert(pid),
            Some(b'-') => _ = groups.remove(&pid),
            _ => {}
        }
    }
    let groups: Vec<Pid> = groups.into_iter().filter_map(Pid::from_raw).collect();
    for group in &groups {
        _ = kill_process_group(*group, Signal::TERM);
    }
    let until = Instant::now() + KILL_AFTER;
    let is_left = |group: &&Pid| test_kill_process_group(**group).is_ok();
    while groups.iter().any(|group| is_left(&group)) && Instant::now() < until {
        thread::park_timeout(Duration::from_millis(20));
    }
    for group in groups.iter().filter(is_left) {
        _ = kill_process_group(*group, Signal::KILL);
    }
}
