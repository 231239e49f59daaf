//! Commands that ask a running server: their tables, and what they say when there is none.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Child;

use insta::assert_snapshot;
use tempfile::TempDir;

use crate::support::{run, shown, tidegate};

/// `tidegate serve` on free ports, ended with the test.
struct Served {
    process: Child,
    gateway: String,
    admin: String,
    folder: TempDir,
}

impl Served {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let settings = r#"
[pool.llm]
endpoints = [
  { name = "a", url = "http://127.0.0.1:9/v1" },
  { name = "b", url = "http://127.0.0.1:9/v2" },
]
"#;
        let file = folder.path().join("tidegate.toml");
        fs::write(&file, settings).unwrap();
        let data = folder.path().join("data");
        let mut process = tidegate("serve --listen 127.0.0.1:0 --admin 127.0.0.1:0")
            .arg("--data")
            .arg(&data)
            .arg("--config")
            .arg(&file)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut address = |before: &str| {
            let line = lines.find_map(|line| {
                let line = line.unwrap();
                line.strip_prefix(before).map(str::to_owned)
            });
            line.unwrap()
        };
        Self {
            gateway: address("listening on http://"),
            admin: address("admin API on "),
            process,
            folder,
        }
    }

    fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    /// Runs a command that asks it, and shows what came of it without what changes every time.
    fn ask(&self, args: &str) -> String {
        let output = tidegate(args)
            .args(["--server", &self.admin, "--token-file"])
            .arg(self.data().join("admin-token"))
            .current_dir(self.folder.path())
            .output()
            .unwrap();
        shown(&output).replace(self.folder.path().to_str().unwrap(), "FOLDER")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

#[test]
fn pools_are_listed_switched_and_tested() {
    let served = Served::new();
    assert_snapshot!(served.ask("pools list"), @"
    exit 0
    --- stdout
    pool  endpoint  state    errors  in flight  url                    last error
    llm   a         enabled       0          0  http://127.0.0.1:9/v1
    llm   b         enabled       0          0  http://127.0.0.1:9/v2
    ");
    assert_snapshot!(served.ask("pools disable llm b"), @"
    exit 0
    --- stdout
    disabled `b` of pool `llm`
    ");
    assert_snapshot!(served.ask("pools list llm"), @"
    exit 0
    --- stdout
    pool  endpoint  state                  errors  in flight  url                    last error
    llm   a         enabled                     0          0  http://127.0.0.1:9/v1
    llm   b         disabled: by a person       0          0  http://127.0.0.1:9/v2
    ");
    assert_snapshot!(served.ask("pools enable llm b --json"), @r#"
    exit 0
    --- stdout
    {
      "consecutive_errors": 0,
      "disabled_reason": null,
      "enabled": true,
      "in_flight": 0,
      "last_error": null,
      "name": "b",
      "paused_until_ms": null,
      "url": "http://127.0.0.1:9/v2"
    }
    "#);
    assert_snapshot!(served.ask("pools test llm"), @"
    exit 0
    --- stdout
    request 1: HTTP 429, 1 in a row: paused for 30s
    request 2: HTTP 429, 2 in a row: paused for 1m
    request 3: HTTP 429, 3 in a row: paused for 2m
    request 4: HTTP 429, 4 in a row: paused for 5m
    request 5: HTTP 429, 5 in a row: paused for 10m and disabled until a person enables it
    ");
    assert_snapshot!(served.ask("pools test llm success_recovery"), @"
    exit 0
    --- stdout
    request 1: HTTP 429, 1 in a row: paused for 30s
    request 2: HTTP 429, 2 in a row: paused for 1m
    request 3: HTTP 200: the endpoint is used
    request 4: HTTP 429, 1 in a row: paused for 30s
    ");
    assert_snapshot!(served.ask("pools list lm"), @"
    exit 1
    --- stderr
    error: there is no pool `lm`; did you mean `llm`?
    ");
    assert_snapshot!(served.ask("pools enable llm aa"), @"
    exit 1
    --- stderr
    error: pool `llm` has no endpoint `aa`; did you mean `a`?
    ");
}

#[test]
fn gates_and_unknown_requests() {
    let served = Served::new();
    assert_snapshot!(served.ask("gates"), @"
    exit 0
    --- stdout
    no gate yet: gates come with their first request

    requests 0  throttled 0  denied 0  retries 0  open 0  half-open 0  gates 0  evicted 0
    ");
    assert_snapshot!(served.ask("gates --json"), @r#"
    exit 0
    --- stdout
    {
      "gates": [],
      "totals": {
        "denied": 0,
        "evicted": 0,
        "gates": 0,
        "half_open": 0,
        "open": 0,
        "requests": 0,
        "retries": 0,
        "throttled": 0
      }
    }
    "#);
    assert_snapshot!(served.ask("explain 000000000000000000000000"), @"
    exit 1
    --- stderr
    error: nothing is known of request `000000000000000000000000`; trails of the last 10000 requests are kept (`trails.keep`), until the next restart
    ");
    assert_snapshot!(served.ask("explain 7"), @"
    exit 2
    --- stderr
    error: expected the id of a request: 24 digits of 0-9 and a-f
    ");
}

#[test]
fn a_request_can_be_explained() {
    use std::io::{Read, Write};
    let served = Served::new();
    let mut stream = std::net::TcpStream::connect(&served.gateway).unwrap();
    let request = format!(
        "POST /llm/x HTTP/1.1\r\nHost: {}\r\nTidegate-Max-Wait: 400ms\r\nConnection: close\r\n\r\n",
        served.gateway
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let line = answer
        .lines()
        .find_map(|line| line.strip_prefix("tidegate-request-id: "));
    let told = served.ask(&format!("explain {}", line.unwrap()));
    assert!(told.contains("POST through `llm`: "), "{told}");
    assert!(told.contains("admitted by `llm/"), "{told}");
    let gates = served.ask("gates --sort key --limit 1");
    assert!(gates.contains("llm/a"), "{gates}");
}

#[test]
fn the_token_of_another_server_is_refused() {
    let served = Served::new();
    let output = tidegate("gates --server")
        .arg(&served.admin)
        .env("TIDEGATE_ADMIN_TOKEN", "0123456789abcdef")
        .current_dir(served.folder.path())
        .output()
        .unwrap();
    let said = shown(&output).replace(&served.admin, "http://ADMIN");
    assert_snapshot!(said, @"
    exit 1
    --- stderr
    error: the server at http://ADMIN does not take this token
    hint: the server's own is in `admin-token` of its data folder: give it with `--token-file FILE` or `TIDEGATE_ADMIN_TOKEN`
    ");
}

/// Runs a command in an empty folder.
fn run_in(folder: &Path, args: &str, token: Option<&str>) -> String {
    let mut command = tidegate(args);
    command.current_dir(folder);
    if let Some(token) = token {
        command.env("TIDEGATE_ADMIN_TOKEN", token);
    }
    shown(&command.output().unwrap())
}

#[test]
fn without_a_server_there_is_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let token = Some("0123456789abcdef");
    let asked = run_in(folder.path(), "gates --server http://127.0.0.1:1", token);
    assert_snapshot!(asked, @"
    exit 1
    --- stderr
    error: cannot reach the server at http://127.0.0.1:1: Connection refused (os error 111)
    hint: is `tidegate serve` running? its admin address is expected to be http://127.0.0.1:1; `--server URL` names another
    ");
    assert_snapshot!(run_in(folder.path(), "gates", None), @"
    exit 1
    --- stderr
    error: cannot read or make the admin token `tidegate-data/admin-token`: No such file or directory (os error 2)
    hint: `tidegate serve` makes it at its first start, in `server.data`; `--token-file FILE` or `TIDEGATE_ADMIN_TOKEN` name another
    ");
    assert_snapshot!(run_in(folder.path(), "gates --server localhost", token), @"
    exit 2
    --- stderr
    error: `--server` is `localhost`, expected an address such as `http://127.0.0.1:7071`
    ");
    assert_snapshot!(run_in(folder.path(), "gates", Some("short")), @"
    exit 2
    --- stderr
    error: the token in `TIDEGATE_ADMIN_TOKEN` is too short
    ");
    fs::write(
        folder.path().join("tidegate.toml"),
        "[server]\nadmin = \"127.0.0.1:0\"\n[client.x]\ntoken = \"env:NOT_HERE\"\n",
    )
    .unwrap();
    assert_snapshot!(run_in(folder.path(), "gates", token), @"
    exit 2
    --- stderr
    error: `server.admin` has no port, so the server may be anywhere
    hint: `tidegate serve` says where it listens: give that as `--server URL`
    ");
    fs::write(
        folder.path().join("tidegate.toml"),
        "[server]\nadmin = \"nowhere\"\n",
    )
    .unwrap();
    assert_snapshot!(run_in(folder.path(), "pools list", token), @"
    exit 2
    --- stderr
    error: tidegate.toml:2:9: `server.admin` is `nowhere`, expected an IP address and a port such as `127.0.0.1:7070` or `[::1]:7070`
    hint: `--server URL` and `--token-file FILE` name a server without any settings
    ");
    let named = "pools list --server http://127.0.0.1:1";
    assert!(run_in(folder.path(), named, token).contains("is `tidegate serve` running?"));
}

#[test]
fn help() {
    assert_snapshot!(run("gates --help", ""), @"
    exit 0
    --- stdout
    Show the gates of a running server: rate, line, breaker and hold of each

    Usage: tidegate gates [OPTIONS]

    Options:
          --watch        Show them again every second, until Ctrl-C
          --sort <WORD>  What the most remarkable gates have most of [default: admitted] [possible
                         values: admitted, waiting, in_flight, error_rate, rate, key]
          --limit <N>    At most so many gates [default: 20]
      -h, --help         Print help

    The server:
          --server <URL>       The admin address of the server [default: `server.admin` of the settings]
          --token-file <FILE>  The file of the admin token [default: TIDEGATE_ADMIN_TOKEN, else
                               `admin-token` in `server.data`]

    Options of every command:
          --config <FILE>  The settings file [default: tidegate.toml, if it is there]
          --json           Write for programs: JSON on stdout
      -q, --quiet          Say only what went wrong
      -v, --verbose...     Say more on stderr

    Examples:
      tidegate gates
      tidegate gates --watch --sort waiting
      tidegate gates --json | jq '.gates[] | select(.hold) | .key'
      tidegate gates --server http://127.0.0.1:7071 --token-file tidegate-data/admin-token
    ");
    assert_snapshot!(run("pools --help", ""), @"
    exit 0
    --- stdout
    Show, enable, disable and test the endpoints of a running server

    Usage: tidegate pools [OPTIONS] <COMMAND>

    Commands:
      list     Show every endpoint, or those of one pool
      enable   Use an endpoint again: all its error state is cleared
      disable  Leave an endpoint alone until somebody enables it
      test     Show what a pool's protection would do; nothing is sent, no endpoint is touched
      help     Print this message or the help of the given subcommand(s)

    Options:
      -h, --help  Print help

    Options of every command:
          --config <FILE>  The settings file [default: tidegate.toml, if it is there]
          --json           Write for programs: JSON on stdout
      -q, --quiet          Say only what went wrong
      -v, --verbose...     Say more on stderr

    Examples:
      tidegate pools list
      tidegate pools disable llm a
      tidegate pools enable llm a
      tidegate pools test llm repeated_errors
    ");
    assert_snapshot!(run("explain --help", ""), @"
    exit 0
    --- stdout
    Tell every decision about one request of a running server

    Usage: tidegate explain [OPTIONS] <REQUEST_ID>

    Arguments:
      <REQUEST_ID>  The `Tidegate-Request-Id` of its answer

    Options:
      -h, --help  Print help

    The server:
          --server <URL>       The admin address of the server [default: `server.admin` of the settings]
          --token-file <FILE>  The file of the admin token [default: TIDEGATE_ADMIN_TOKEN, else
                               `admin-token` in `server.data`]

    Options of every command:
          --config <FILE>  The settings file [default: tidegate.toml, if it is there]
          --json           Write for programs: JSON on stdout
      -q, --quiet          Say only what went wrong
      -v, --verbose...     Say more on stderr

    Examples:
      curl -i http://127.0.0.1:7070/llm/v1/models    # its answer has a Tidegate-Request-Id
      tidegate explain 8c1f03aa0000000000000007
    ");
}

#[test]
fn words_that_are_not_known_are_refused() {
    assert_snapshot!(run("gates --sort size", ""), @"
    exit 2
    --- stderr
    error: invalid value 'size' for '--sort <WORD>'
      [possible values: admitted, waiting, in_flight, error_rate, rate, key]

    For more information, try '--help'.
    ");
    assert_snapshot!(run("pools test llm everything", ""), @"
    exit 2
    --- stderr
    error: invalid value 'everything' for '[SCENARIO]'
      [possible values: single_error, repeated_errors, success_recovery, auto_disable]

    For more information, try '--help'.
    ");
    assert_snapshot!(run("gates --limit 0", ""), @"
    exit 2
    --- stderr
    error: invalid value '0' for '--limit <N>': 0 is not in 1..=1000

    For more information, try '--help'.
    ");
}
