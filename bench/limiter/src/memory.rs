//! Memory of a key: how much more the process has when all keys are known.
//!
//! Resident memory, as the system counts it, because what an allocator wastes has to be paid for
//! too. In a process of its own: elsewhere, memory that others have freed would be used again and
//! not be seen.

use std::env;
use std::fs;
use std::process::{Command, ExitCode};

use crate::contender::Contender;
use crate::keys::{self, write_key};
use crate::ours::{DEFAULT, Ours};
use crate::report;

/// With this argument the program measures its own memory.
pub(crate) const ARGUMENT: &str = "memory";

/// Bytes for each of so many keys, besides the text of the key.
pub(crate) fn measure_in_child(keys: usize) -> f64 {
    let program = env::current_exe().expect("this program is a file");
    let output = Command::new(program)
        .args([ARGUMENT, &keys.to_string()])
        .output()
        .expect("this program runs once more");
    let printed = String::from_utf8_lossy(&output.stdout);
    let bytes = printed.trim().parse::<f64>();
    bytes.expect("the child prints a number")
}

/// Makes the keys, and prints what each of them took.
pub(crate) fn measure_here(keys: &str) -> ExitCode {
    let Ok(keys) = keys.parse::<usize>() else {
        return report::usage();
    };
    let mut key = keys::key(0);
    let ours = Ours::new(DEFAULT);
    ours.attempt(&key);
    let before = resident_bytes();
    for number in 1..=keys {
        write_key(&mut key, number);
        assert!(ours.attempt(&key), "no attempt is refused");
    }
    let grown = resident_bytes() - before;
    assert_eq!(ours.limiter().gates(), keys + 1, "none was forgotten");
    report::print_number(grown / keys as f64 - keys::LENGTH as f64);
    ExitCode::SUCCESS
}

fn resident_bytes() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux tells about this process");
    let mut lines = status.lines();
    let line = lines.find_map(|line| line.strip_prefix("VmRSS:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kibibytes = kibibytes.and_then(|number| number.trim().parse::<f64>().ok());
    kibibytes.expect("the line has a number and its unit") * 1024.0
}
