//! A data folder on a disk without space.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::support::{Home, mock, wait_for};

/// Mounts a small disk at `DATA`, copies the folder `FILES` to it, fills what is left, and runs the command. In a
/// namespace of its own, where any user may mount, and which ends with the command.
const ON_A_FULL_DISK: &str =
    "mount -t tmpfs -o size=4m none \"$DATA\" && cp -a \"$FILES\"/. \"$DATA\" &&
    { cat /dev/zero >\"$DATA/other\" || true; } 2>/dev/null && exec \"$0\" \"$@\"";

/// `command` on a full disk with these files.
fn on_full_disk(command: &Command, data: &Path, files: &Path) -> Command {
    let mut wrapped = Command::new("unshare");
    wrapped
        .args(["--map-root-user", "--mount", "sh", "-c", ON_A_FULL_DISK])
        .arg(command.get_program())
        .args(command.get_args())
        .env("DATA", data)
        .env("FILES", files)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    wrapped
}

/// Where no disk can be mounted, nothing is tested.
#[test]
fn a_full_disk_does_not_prevent_a_start_and_is_said() {
    let upstream = mock("200");
    let home = Home::new(&format!(
        "[gate]\ninitial_rate = 1000\n[network]\nallow = [\"127.0.0.1/32\"]\n[pool.api]\nendpoints = [{{ name = \"a\", url = \"http://{}\" }}]\n",
        upstream.address()
    ));
    assert!(home.start().stop().success());
    let files = tempfile::tempdir().unwrap();
    for file in fs::read_dir(home.data()).unwrap() {
        let file = file.unwrap();
        if file.file_type().unwrap().is_file() {
            fs::copy(file.path(), files.path().join(file.file_name())).unwrap();
        }
    }
    let probe = on_full_disk(&Command::new("true"), &home.data(), files.path()).output();
    if !probe.is_ok_and(|output| output.status.success()) {
        println!("no disk can be mounted here");
        return;
    }

    let server = home.start_with(on_full_disk(&home.command(), &home.data(), files.path()));
    assert_eq!(server.get("/api/x").unwrap().status, 200);
    // What is to be stored cannot be.
    let disable = || {
        let path = "/api/v1/pools/api/endpoints/a";
        let body = json!({ "enabled": false });
        let answer = server.admin.call("PATCH", path, Some(&body));
        answer.unwrap().status
    };
    assert_eq!(disable(), 503);
    let ready = || server.admin.call("GET", "/readyz", None).unwrap();
    wait_for("word about the store", || {
        (ready().status == 503).then_some(())
    });
    wait_for("line in the log", || {
        home.stderr().contains("store_degraded").then_some(())
    });
    assert_eq!(server.get("/api/x").unwrap().status, 200);

    // Its view of the files is not that of this process.
    let seen = PathBuf::from(format!("/proc/{}/root", server.pid()));
    let data = home.data();
    let data = data.strip_prefix("/").unwrap();
    fs::remove_file(seen.join(data).join("other")).unwrap();
    wait_for("recovery", || (ready().status == 200).then_some(()));
    assert_eq!(disable(), 200);
    assert!(server.stop().success());
}
