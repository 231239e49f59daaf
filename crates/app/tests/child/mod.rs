//! Tests in a process of their own.

use std::process::Command;

/// Runs a test in a process of its own: for what is measured of a whole process, or needs an
/// environment of its own. `name` is the test's own path.
pub(crate) fn in_child(name: &str, test: impl FnOnce()) {
    in_child_with(name, &[], test);
}

/// The same with these variables in its environment.
pub(crate) fn in_child_with(name: &str, variables: &[(&str, &str)], test: impl FnOnce()) {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command.envs(variables.iter().copied());
    run_child(command, name, test);
}

/// The same in a process that may have so many descriptors open.
pub(crate) fn in_child_with_descriptors(name: &str, count: u32, test: impl FnOnce()) {
    in_child_limited(name, &format!("ulimit -n {count}"), test);
}

/// The same in a process that may raise that limit.
pub(crate) fn in_child_with_soft_descriptors(name: &str, count: u32, test: impl FnOnce()) {
    in_child_limited(name, &format!("ulimit -S -n {count}"), test);
}

/// The same in a process that a shell starts after this command.
fn in_child_limited(name: &str, limit: &str, test: impl FnOnce()) {
    let mut command = Command::new("sh");
    let script = format!("{limit} && exec \"$0\" \"$@\"");
    command
        .arg("-c")
        .arg(script)
        .arg(std::env::current_exe().unwrap());
    run_child(command, name, test);
}

fn run_child(mut command: Command, name: &str, test: impl FnOnce()) {
    if std::env::var_os(CHILD).is_some() {
        return test();
    }
    let command = command
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1");
    let ended = command.output().unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(
        ended.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

const CHILD: &str = "TEST_IS_CHILD";
