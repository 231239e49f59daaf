//! Commands that call a running server: tables, changes, and errors if there is no server.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Child;

use insta::assert_snapshot;
use tempfile::TempDir;

use crate::support::{run, shown, tidegate};

/// `tidegate serve` on free ports, stopped with the test.
pub(crate) struct Served {
    process: Child,
    gateway: String,
    pub(crate) admin: String,
    pub(crate) folder: TempDir,
}

impl Served {
    fn new() -> Self {
        Self::with(
            r#"
[server]
secrets = ["env:PATH"]
[network]
allow = ["127.0.0.1/32"]
[pool.llm]
endpoints = [
  { name = "a", url = "http://127.0.0.1:9/v1" },
  { name = "b", url = "http://127.0.0.1:9/v2" },
]
"#,
        )
    }

    /// With these settings.
    pub(crate) fn with(settings: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
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

    pub(crate) fn data(&self) -> std::path::PathBuf {
        self.folder.path().join("data")
    }

    /// Runs a command that calls it, and shows the result without what changes every time.
    fn ask(&self, args: &str) -> String {
        self.ask_with(args, &[])
    }

    /// The same with arguments that have blanks.
    pub(crate) fn ask_with(&self, args: &str, more: &[&str]) -> String {
        let output = tidegate(args)
            .args(more)
            .args(["--server", &self.admin, "--token-file"])
            .arg(self.data().join("admin-token"))
            .current_dir(self.folder.path())
            .output()
            .unwrap();
        shown(&output).replace(self.folder.path().to_str().unwrap(), "FOLDER")
    }
}

impl Served {
    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn pools_lists_switches_and_tests_endpoints() {
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
    disabled `b` of pool `llm` until a person enables it
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
      "disabled_at_ms": null,
      "disabled_kind": null,
      "disabled_reason": null,
      "enabled": true,
      "in_flight": 0,
      "key": "llm/b",
      "last_error": null,
      "name": "b",
      "pause_started_ms": null,
      "paused_until_ms": null,
      "recovering": false,
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
    hint: `tidegate pools list` shows which there are
    ");
    assert_snapshot!(served.ask("pools enable llm aa"), @"
    exit 1
    --- stderr
    error: pool `llm` has no endpoint `aa`; did you mean `a`?
    hint: `tidegate pools list` shows which there are
    ");
}

#[test]
fn pools_add_and_remove_change_a_pool() {
    let served = Served::new();
    assert_snapshot!(served.ask("pools add llm c http://127.0.0.1:9/v3"), @"
    exit 0
    --- stdout
    added `c` to pool `llm`: http://127.0.0.1:9/v3, used from now on
    ");
    assert_snapshot!(served.ask("pools add llm d http://127.0.0.1:9/v4 --header x-key=env:PATH --json"), @r#"
    exit 0
    --- stdout
    {
      "consecutive_errors": 0,
      "disabled_at_ms": null,
      "disabled_kind": null,
      "disabled_reason": null,
      "enabled": true,
      "in_flight": 0,
      "key": "llm/d",
      "last_error": null,
      "name": "d",
      "pause_started_ms": null,
      "paused_until_ms": null,
      "recovering": false,
      "url": "http://127.0.0.1:9/v4"
    }
    "#);
    assert_snapshot!(served.ask("pools list llm"), @"
    exit 0
    --- stdout
    pool  endpoint  state    errors  in flight  url                    last error
    llm   a         enabled       0          0  http://127.0.0.1:9/v1
    llm   b         enabled       0          0  http://127.0.0.1:9/v2
    llm   c         enabled       0          0  http://127.0.0.1:9/v3
    llm   d         enabled       0          0  http://127.0.0.1:9/v4
    ");
    assert_snapshot!(served.ask("pools remove llm d"), @"
    exit 0
    --- stdout
    removed `d` from pool `llm`
    ");
    for name in ["a", "b"] {
        served.ask(&format!("pools remove llm {name}"));
    }
    assert_snapshot!(served.ask("pools list"), @"
    exit 0
    --- stdout
    pool  endpoint  state    errors  in flight  url                    last error
    llm   c         enabled       0          0  http://127.0.0.1:9/v3
    ");
    assert_snapshot!(served.ask("pools remove llm c"), @"
    exit 0
    --- stdout
    removed `c` from pool `llm`
    pool `llm` has no endpoint left: its requests are refused with `no_endpoint`
    ");
}

#[test]
fn pools_add_and_remove_explain_what_is_wrong() {
    let served = Served::new();
    assert_snapshot!(served.ask("pools add lm c http://127.0.0.1:9"), @"
    exit 1
    --- stderr
    error: there is no pool `lm`; did you mean `llm`?
    hint: `tidegate pools list` shows which there are
    ");
    assert_snapshot!(served.ask("pools add llm a http://127.0.0.1:9"), @"
    exit 2
    --- stderr
    error: `name` is `a`, expected a name that no other endpoint of the pool has
    ");
    assert_snapshot!(served.ask("pools add llm c https://192.0.2.1/v1"), @"
    exit 1
    --- stderr
    error: `192.0.2.1` is not a public address; allow it in `[network]` if that is meant
    ");
    assert_snapshot!(served.ask("pools add llm c nowhere"), @"
    exit 2
    --- stderr
    error: `url` is `nowhere`, expected a URL such as `https://api.example.com/v1`
    ");
    assert_snapshot!(served.ask("pools remove llm aa"), @"
    exit 1
    --- stderr
    error: pool `llm` has no endpoint `aa`; did you mean `a`?
    hint: `tidegate pools list` shows which there are
    ");
    assert_snapshot!(served.ask("pools add llm c http://127.0.0.1:9 --header x-key=sk-12345 --header y"), @"
    exit 2
    --- stderr
    error: `--header x-key` has a literal value, expected a reference
    error: `--header` has no `=`, expected NAME=REFERENCE
    hint: a reference is `env:NAME` or `file:PATH`, read by the server, as in `--header authorization='Bearer env:API_KEY'`
    ");
}

#[test]
fn gates_reset_isolate_and_release_override_gates() {
    let served = Served::new();
    assert_snapshot!(served.ask("gates isolate llm/a 127.0.0.1:9"), @"
    exit 0
    --- stdout
    isolated `llm/a`: rate 2.00/s, breaker isolated; requests are refused until it is released or reset
    isolated `127.0.0.1:9`: rate 2.00/s, breaker isolated; requests are refused until it is released or reset
    ");
    assert_snapshot!(served.ask("gates list --sort key"), @"
    exit 0
    --- stdout
    key          rate    in flight  waiting  p95  errors  breaker   hold  admitted  throttled  failed
    127.0.0.1:9  2.00/s          0        0  -    0 %     isolated  -            0          0       0
      isolated: refuses everything until it is released or reset
    llm/a        2.00/s          0        0  -    0 %     isolated  -            0          0       0
      isolated: refuses everything until it is released or reset

    requests 0  throttled 0  denied 0  retries 0  open 2  half-open 0  gates 2  evicted 0
    ");
    assert_snapshot!(served.ask("gates release llm/a"), @"
    exit 0
    --- stdout
    released `llm/a`: rate 2.00/s, breaker isolated to closed
    ");
    assert_snapshot!(served.ask("gates reset 127.0.0.1:9"), @"
    exit 0
    --- stdout
    reset `127.0.0.1:9`: rate 2.00/s, breaker isolated to closed
    ");
    assert_snapshot!(served.ask("gates reset llm/a"), @"
    exit 0
    --- stdout
    reset `llm/a`: rate 2.00/s, breaker closed
    ");
    let output = served.ask("gates isolate llm/b --json");
    let (_, json) = output.split_once("--- stdout\n").unwrap();
    let gates: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(gates["gates"][0]["key"], "llm/b");
    assert_eq!(gates["gates"][0]["breaker"]["state"], "isolated");
}

#[test]
fn gates_overrides_the_others_if_one_key_is_wrong() {
    let served = Served::new();
    served.ask("gates isolate llm/a");
    assert_snapshot!(served.ask("gates release llm/aa llm/a llm/"), @"
    exit 1
    --- stdout
    released `llm/a`: rate 2.00/s, breaker isolated to closed
    --- stderr
    error: there is no gate `llm/aa`; did you mean `llm/a`?
    error: there is no gate `llm/`; did you mean `llm/a`?
    hint: `tidegate gates` shows which there are
    ");
    assert_snapshot!(served.ask("gates --watch release llm/a"), @"
    exit 2
    --- stderr
    error: `--watch`, `--sort` and `--limit` are options of `tidegate gates list`, not of `release`
    hint: `tidegate gates --watch` shows the effect in another terminal
    ");
}

#[test]
fn config_names_the_server_and_the_folder_of_its_token() {
    let served = Served::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("other.toml");
    let admin = served.admin.strip_prefix("http://").unwrap();
    let settings = format!(
        "[server]\nadmin = \"{admin}\"\ndata = {:?}\n",
        served.data()
    );
    fs::write(&file, settings).unwrap();
    for args in [
        "--config FILE pools list",
        "pools --config FILE list",
        "pools list --config FILE",
    ] {
        let output = run_in(folder.path(), &args.replace("FILE", "other.toml"), None);
        assert!(output.contains("http://127.0.0.1:9/v1"), "{args}: {output}");
    }
    // Flags override the file, but a file that is named has to exist.
    let token = Some("0123456789abcdef");
    let args = "gates --config missing.toml --server http://127.0.0.1:1";
    assert_snapshot!(run_in(folder.path(), args, token), @"
    exit 2
    --- stderr
    error: missing.toml: cannot read the settings: No such file or directory (os error 2)
    hint: `--server URL` and `--token-file FILE` name a server without a settings file
    ");
}

#[test]
fn control_characters_of_a_server_are_escaped() {
    let evil = r"a\u001b]0;title\u0007\nb\u009b2J\u202e";
    let gates = format!(
        r#"{{"totals":{{"requests":0,"throttled":0,"denied":0,"retries":0,"open":0,"half_open":0,"gates":1,"evicted":0,"held":0,"isolated":0,"waiting":0,
        "in_flight":0}},"total":1,"gates":[{{"key":"{evil}","strategy":"aimd","rate_per_second":1,"tokens":1,"in_flight":0,"waiting":0,
        "latency_ms":{{"ewma":1,"p95":null}},"error_rate":0,"breaker":{{"state":"closed","until_ms":null,"since_ms":null,"reason":null}},
        "consecutive_failures":0,"hold":{{"until_ms":0,"since_ms":null,"reason":"{evil}","source":"{evil}"}},
        "counts":{{"admitted":0,"success":0,"throttled":0,"failed":0}},"window":{{"total":0,"failed":0}},
        "phase":null,"ceiling":null,"why":"{evil}",
        "accepted_per_second":0,"refused_per_second":0,"failed_per_second":0}}]}}"#
    );
    let protection = r#"{"enabled":true,"pauses":[],"disable_after":5,"unreachable":false,
        "show_test_tool":false,"probing_after":20,"statuses":[],"texts":[]}"#;
    let pools = format!(
        r#"{{"pools":[{{"name":"{evil}","balance":"first","protection":{protection},"configured":{protection},
        "changed":false,"endpoints":[{{"name":"{evil}","key":"{evil}","url":"{evil}","enabled":true,
        "paused_until_ms":null,"pause_started_ms":null,"recovering":false,"consecutive_errors":0,"last_error":"{evil}",
        "disabled_reason":null,"disabled_kind":null,"disabled_at_ms":null,"in_flight":0}}]}}]}}"#
    );
    let trail = format!(
        r#"{{"id":"{evil}","at_ms":0,"route":"{evil}","method":"{evil}","status":200,"endpoint":null,"outcome":"{evil}",
        "attempts":1,"waited_ms":0,"steps":[{{"at_ms":0,"kind":"over","text":"{evil}"}}],"left_out":0}}"#
    );
    let problem = format!(r#"{{"reason":"{evil}","detail":"{evil}"}}"#);
    let check = |args: &str, status: &str, body: &str| {
        let server = FakeServer::new(status, body);
        let output = run_in(
            Path::new("."),
            &format!("{args} --server {}", server.url),
            Some("0123456789abcdef"),
        );
        let active = |c: &char| c.is_control() && *c != '\n' || *c == '\u{202e}';
        assert_eq!(output.chars().find(active), None, "{args}: {output:?}");
        assert!(output.contains("title"), "{args}: {output:?}");
        output
    };
    check("gates", "200 OK", &gates);
    check("gates --json", "200 OK", &gates);
    check("pools list", "200 OK", &pools);
    check("explain 7", "200 OK", &trail);
    let refused = check("pools list", "409 Conflict", &problem);
    assert_snapshot!(refused, @r#"
    exit 1
    --- stderr
    error: a\u{1b}]0;title\u{7}\nb\u{9b}2J\u{202e}
    "#);
}

/// A server that sends the same response to every request.
struct FakeServer {
    url: String,
}

impl FakeServer {
    fn new(status: &str, body: &str) -> Self {
        use std::io::{Read, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let length = body.len();
        let response = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                _ = stream.read(&mut [0; 4096]);
                _ = stream.write_all(response.as_bytes());
            }
        });
        Self { url }
    }
}

#[test]
fn gates_lists_nothing_and_explain_knows_nothing_before_a_request() {
    let served = Served::new();
    assert_snapshot!(served.ask("gates"), @"
    exit 0
    --- stdout
    no gates yet: a gate is made by the first request to its key

    requests 0  throttled 0  denied 0  retries 0  open 0  half-open 0  gates 0  evicted 0
    ");
    assert_snapshot!(served.ask("gates --json"), @r#"
    exit 0
    --- stdout
    {
      "gates": [],
      "total": 0,
      "totals": {
        "denied": 0,
        "evicted": 0,
        "gates": 0,
        "half_open": 0,
        "held": 0,
        "in_flight": 0,
        "isolated": 0,
        "open": 0,
        "requests": 0,
        "retries": 0,
        "throttled": 0,
        "waiting": 0
      }
    }
    "#);
    assert_snapshot!(served.ask("explain 000000000000000000000000"), @"
    exit 1
    --- stderr
    error: there is no trail of request `000000000000000000000000`; the server has those of the last 10000 requests (`trails.keep`), until the next restart
    ");
    assert_snapshot!(served.ask("explain 7"), @"
    exit 2
    --- stderr
    error: expected the id of a request: 24 digits of 0-9 and a-f
    ");
}

#[test]
fn explain_shows_the_decisions_about_a_request() {
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
fn wrong_token_is_an_error_with_a_hint() {
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
    hint: pass the file `admin-token` of the server's data folder with `--token-file FILE`, or its content in `TIDEGATE_ADMIN_TOKEN`
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
fn missing_server_token_or_settings_are_errors_with_hints() {
    let folder = tempfile::tempdir().unwrap();
    let token = Some("0123456789abcdef");
    let asked = run_in(folder.path(), "gates --server http://127.0.0.1:1", token);
    assert_snapshot!(asked, @"
    exit 1
    --- stderr
    error: cannot reach the server at http://127.0.0.1:1: Connection refused (os error 111)
    hint: start it with `tidegate serve`, or name another with `--server URL`
    ");
    assert_snapshot!(run_in(folder.path(), "gates", None), @"
    exit 1
    --- stderr
    error: cannot read or make the admin token `tidegate-data/admin-token`: No such file or directory (os error 2)
    hint: `tidegate serve` creates the token in `server.data` at its first start; `--config FILE`, `--token-file FILE` or `TIDEGATE_ADMIN_TOKEN` name another
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
    hint: the server's token is in `admin-token` of its data folder
    ");
    fs::write(
        folder.path().join("tidegate.toml"),
        "[server]\nadmin = \"127.0.0.1:0\"\n[client.x]\ntoken = \"env:NOT_HERE\"\n",
    )
    .unwrap();
    assert_snapshot!(run_in(folder.path(), "gates", token), @"
    exit 2
    --- stderr
    error: `server.admin` is `127.0.0.1:0`, expected a port
    hint: `tidegate serve` prints its admin address: pass it as `--server URL`
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
    hint: `--server URL` and `--token-file FILE` name a server without a settings file
    ");
    let named = "pools list --server http://127.0.0.1:1";
    assert!(run_in(folder.path(), named, token).contains("start it with `tidegate serve`"));
}

#[test]
fn help() {
    assert_snapshot!(run("gates --help", ""), @"
    exit 0
    --- stdout
    Show the gates of a running server, or override what they decided

    Without a command, `list`.

    Usage: tidegate gates [OPTIONS] [COMMAND]

    Commands:
      list     Show rate, line, breaker and hold of each gate, and why
      servers  Show which part of the rate of a gate each server of a fleet has
      reset    Start gates anew: rate, hold, breaker and counts; callers in line
               stay
      isolate  Refuse every request at gates until they are released or reset
      release  End hold, open breaker and isolation of gates; the learned rate stays
      help     Print this message or the help of the given subcommand(s)

    Options:
          --watch
              Show them again every second, until Ctrl-C

          --sort <FIGURE>
              Figure to sort by, highest first; keys in alphabetical order [default:
              admitted]
              
              [possible values: admitted, waiting, in_flight, error_rate, rate, key,
              accepted, refused, p95, until]

          --limit <N>
              Number of gates to show, at most 1000 [default: 20]

      -h, --help
              Print help (see a summary with '-h')

    Server options:
          --server <URL>
              Admin address of the server [default: `server.admin` of the settings]

          --token-file <FILE>
              File with the admin token [default: TIDEGATE_ADMIN_TOKEN, else
              `admin-token` in `server.data`]

          --client-cert <FILE>
              Certificate to show a server whose `admin_tls` has a `client_ca`, as
              PEM

          --client-key <FILE>
              Private key of that certificate, as PEM

    Global options:
          --config <FILE>
              Settings file [default: TIDEGATE_CONFIG, else tidegate.toml if it
              exists]

          --json
              Print JSON on stdout

      -q, --quiet
              Print errors only

      -v, --verbose...
              Print more on stderr

    Examples:
      tidegate gates
      tidegate gates --watch --sort waiting
      tidegate gates --json | jq '.gates[] | select(.hold) | .key'
      tidegate gates servers llm/a
      tidegate gates isolate llm/a api.example.com
      tidegate gates release llm/a
      tidegate gates reset llm/a --server http://127.0.0.1:7071
    ");
    assert_snapshot!(run("pools --help", ""), @r#"
    exit 0
    --- stdout
    Show, switch, add, remove and test the endpoints of a running server

    Usage: tidegate pools [OPTIONS] <COMMAND>

    Commands:
      list     Show every endpoint, or those of one pool
      enable   Use an endpoint again; clears its errors, its pause and its gate's
               isolation
      disable  Stop using an endpoint until a person enables it
      add      Add an endpoint to a pool; it is used at once and kept over restarts
      remove   Remove an endpoint from its pool; requests in flight finish
      test     Show how a pool's protection would react; sends nothing, changes
               nothing
      help     Print this message or the help of the given subcommand(s)

    Options:
      -h, --help  Print help

    Server options:
          --server <URL>        Admin address of the server [default: `server.admin`
                                of the settings]
          --token-file <FILE>   File with the admin token [default:
                                TIDEGATE_ADMIN_TOKEN, else `admin-token` in
                                `server.data`]
          --client-cert <FILE>  Certificate to show a server whose `admin_tls` has a
                                `client_ca`, as PEM
          --client-key <FILE>   Private key of that certificate, as PEM

    Global options:
          --config <FILE>  Settings file [default: TIDEGATE_CONFIG, else
                           tidegate.toml if it exists]
          --json           Print JSON on stdout
      -q, --quiet          Print errors only
      -v, --verbose...     Print more on stderr

    Examples:
      tidegate pools list
      tidegate pools disable llm a
      tidegate pools enable llm a
      tidegate pools add llm c https://c.example.com/v1 \
          --header authorization='Bearer env:KEY_C'
      tidegate pools remove llm c
      tidegate pools test llm repeated_errors
    "#);
    assert_snapshot!(run("explain --help", ""), @"
    exit 0
    --- stdout
    Show every decision about one request of a running server

    Usage: tidegate explain [OPTIONS] <REQUEST_ID>

    Arguments:
      <REQUEST_ID>  Value of `Tidegate-Request-Id` in the response

    Options:
      -h, --help  Print help

    Server options:
          --server <URL>        Admin address of the server [default: `server.admin`
                                of the settings]
          --token-file <FILE>   File with the admin token [default:
                                TIDEGATE_ADMIN_TOKEN, else `admin-token` in
                                `server.data`]
          --client-cert <FILE>  Certificate to show a server whose `admin_tls` has a
                                `client_ca`, as PEM
          --client-key <FILE>   Private key of that certificate, as PEM

    Global options:
          --config <FILE>  Settings file [default: TIDEGATE_CONFIG, else
                           tidegate.toml if it exists]
          --json           Print JSON on stdout
      -q, --quiet          Print errors only
      -v, --verbose...     Print more on stderr

    Examples:
      curl -i http://127.0.0.1:7070/llm/v1/models   # shows Tidegate-Request-Id
      tidegate explain 8c1f03aa0000000000000007
    ");
}

#[test]
fn unknown_values_are_errors_that_list_the_known_ones() {
    assert_snapshot!(run("gates --sort size", ""), @"
    exit 2
    --- stderr
    error: `--sort` is `size`, expected one of `admitted`, `waiting`, `in_flight`, `error_rate`, `rate`, `key`, `accepted`, `refused`, `p95`, `until`
    hint: `tidegate gates --help` shows what it takes
    ");
    assert_snapshot!(run("pools test llm everything", ""), @"
    exit 2
    --- stderr
    error: `SCENARIO` is `everything`, expected one of `single_error`, `repeated_errors`, `success_recovery`, `auto_disable`
    hint: `tidegate pools test --help` shows what it takes
    ");
    assert_snapshot!(run("gates --limit 0", ""), @"
    exit 2
    --- stderr
    error: `--limit` is `0`, expected a whole number from 1 to 1000
    hint: `tidegate gates --help` shows what it takes
    ");
}

#[test]
fn serve_refuses_an_unknown_log_filter() {
    let filtered = |filter| {
        let output = tidegate("serve").env("TIDEGATE_LOG", filter).output();
        shown(&output.unwrap())
    };
    assert_snapshot!(filtered("info,requests=debug"), @"
    exit 2
    --- stderr
    error: environment variable `TIDEGATE_LOG`: no event is called or begins with `requests`
    ");
    assert_snapshot!(filtered("request=loud"), @"
    exit 2
    --- stderr
    error: environment variable `TIDEGATE_LOG`: `request=loud`, expected LEVEL or EVENT=LEVEL, separated by commas, with a level of off, error, warn, info, debug or trace
    ");
}
