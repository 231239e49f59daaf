//! `tidegate health`.

use insta::assert_snapshot;

use crate::running_server::Served;
use crate::support::{shown, tidegate};

#[test]
fn health_needs_no_token_and_tells_by_its_exit_code() {
    let mut served = Served::with("");
    let health = |served: &Served, args: &str| {
        let mut command = tidegate(args);
        command.args(["--server", &served.admin]);
        shown(&command.output().unwrap()).replace(&served.admin, "SERVER")
    };
    assert_snapshot!(health(&served, "health"), @"
    exit 0
    --- stdout
    ok
    ");
    assert_snapshot!(health(&served, "health --ready --json"), @r#"
    exit 0
    --- stdout
    {
      "status": "ok"
    }
    "#);
    served.kill();
    assert_snapshot!(health(&served, "health"), @"
    exit 1
    --- stderr
    error: cannot reach the server at SERVER: Connection refused (os error 111)
    hint: start it with `tidegate serve`, or name another with `--server URL`
    ");
}

#[test]
fn health_finds_the_server_by_its_settings() {
    let served = Served::with("");
    let file = served.folder.path().join("other.toml");
    let admin = served.admin.strip_prefix("http://").unwrap();
    std::fs::write(&file, format!("[server]\nadmin = '{admin}'\n")).unwrap();
    let mut command = tidegate("health --config");
    let output = command.arg(&file).output().unwrap();
    assert_eq!(shown(&output), "exit 0\n--- stdout\nok\n");
}
