//! `tidegate ops`: against a running server, and on the data folder when none runs.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use insta::assert_snapshot;
use serde_json::Value;

use crate::running_server::Served;
use crate::support::{output, shown, tidegate};

/// An upstream whose response depends on the path.
fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            std::thread::spawn(move || respond(stream));
        }
    });
    address
}

fn respond(mut stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut request = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) <= 2 {
            break;
        }
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        request.push_str(&line);
    }
    _ = reader.read_exact(&mut vec![0; length]);
    let (status, body) = match request.split(' ').nth(1).unwrap_or_default() {
        "/rejected" => (404, "no"),
        "/conflict" if request.starts_with("PUT") && !request.contains("if-match: \"2\"") => {
            (412, "")
        }
        "/conflict" => (200, r#"{"theirs":1}"#),
        _ => (200, "ok"),
    };
    let length = body.len();
    let head = format!("HTTP/1.1 {status} x\r\nContent-Length: {length}\r\nETag: \"2\"\r\n");
    _ = stream.write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes());
}

fn served() -> (Served, SocketAddr) {
    let served = Served::with("[network]\nallow = [\"127.0.0.1/32\"]\n");
    (served, upstream())
}

impl Served {
    fn ops(&self, args: &str) -> String {
        stable(&self.ask_with(&format!("ops {args}"), &[]))
    }

    /// Adds an operation, and waits until it has ended; its id.
    fn deliver(&self, args: &str, more: &[&str]) -> String {
        let id = id_in(&self.ask_with(&format!("ops add {args}"), more));
        for _ in 0..200 {
            let state = self.json(&format!("ops show {id}"))["state"].clone();
            if !["available", "running", "retryable"].contains(&state.as_str().unwrap()) {
                return id;
            }
            std::thread::yield_now();
        }
        panic!(
            "it has not ended: {}",
            self.ask_with(&format!("ops show {id}"), &[])
        );
    }

    fn json(&self, args: &str) -> Value {
        let shown = self.ask_with(args, &["--json"]);
        let text = shown
            .strip_prefix("exit 0\n--- stdout\n")
            .unwrap_or_else(|| panic!("{shown}"));
        serde_json::from_str(text).unwrap()
    }
}

fn id_in(text: &str) -> String {
    let start = text.find("op_").unwrap_or_else(|| panic!("{text}"));
    text[start..start + 29].to_owned()
}

/// Without ids, times, ports and widths, which differ from run to run.
fn stable(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let words: Vec<&str> = line
            .split("  ")
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .collect();
        let words = words.iter().map(|word| {
            let parts = word.split(' ').map(stable_word);
            parts.collect::<Vec<_>>().join(" ")
        });
        words.collect::<Vec<_>>().join("  ")
    });
    lines.map(|line| line + "\n").collect()
}

fn stable_word(word: &str) -> String {
    if let Some(start) = word.find("op_").filter(|start| start + 29 <= word.len()) {
        return format!("{}ID{}", &word[..start], &word[start + 29..]);
    }
    if let Some(start) = word.find("127.0.0.1:") {
        let port = start + "127.0.0.1:".len();
        let rest = word[port..].trim_start_matches(|c: char| c.is_ascii_digit());
        return format!("{}PORT{rest}", &word[..port]);
    }
    let is_seconds = |word: &str| {
        word.strip_suffix('s')
            .is_some_and(|n| n.parse::<u32>().is_ok())
    };
    let is_trace = word.len() == 32 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    match word {
        _ if is_seconds(word) => "Ns".to_owned(),
        _ if is_trace => "TRACE".to_owned(),
        _ => word.to_owned(),
    }
}

#[test]
fn adds_lists_and_shows_operations() {
    let (served, upstream) = served();
    assert_snapshot!(served.ops("list"), @"
    exit 0
    --- stdout
    no operations
    ");
    let id = served.deliver(
        &format!("-X PUT http://{upstream}/orders/7"),
        &["-H", "x-a: b", "-d", "{}"],
    );
    served.deliver(
        &format!("http://{upstream}/rejected --type default -d x"),
        &[],
    );
    assert_snapshot!(served.ops("list"), @"
    exit 0
    --- stdout
    id  type  state  sent  age  request
    ID  default  failed: rejected  1  Ns  POST http://127.0.0.1:PORT/…
    ID  default  completed  1  Ns  PUT http://127.0.0.1:PORT/…
    ");
    assert_snapshot!(served.ops("list --state failed --reason rejected"), @"
    exit 0
    --- stdout
    id  type  state  sent  age  request
    ID  default  failed: rejected  1  Ns  POST http://127.0.0.1:PORT/…
    ");
    assert_snapshot!(served.ops("list --limit 1"), @"
    exit 0
    --- stdout
    id  type  state  sent  age  request
    ID  default  failed: rejected  1  Ns  POST http://127.0.0.1:PORT/…

    there are more: filter them, raise `--limit`, or export all with `tidegate ops export`
    ");
    assert_snapshot!(served.ops("list --key example.com"), @"
    exit 0
    --- stdout
    no operations
    ");
    let show = served.ops(&format!("show {id}"));
    // How long it took differs.
    let show: Vec<&str> = show.lines().filter(|line| !line.contains(" ms")).collect();
    assert_snapshot!(show.join("\n"), @"
    exit 0
    --- stdout
    id  ID
    request  PUT http://127.0.0.1:PORT/…
    type  default
    state  completed
    accepted  Ns ago
    ended  Ns ago
    trace  TRACE

    sent  status  phase  latency  waited  result
    ");
    let shown = served.json(&format!("ops show {id}"));
    assert_eq!(shown["attempts"][0]["status"], 200);
    assert_eq!(shown["attempts"][0]["reason"], "success");
    let list = served.json("ops list");
    assert_eq!(list["operations"].as_array().unwrap().len(), 2);
}

#[test]
fn adds_what_a_file_says_under_a_key() {
    let (served, upstream) = served();
    let file = served.folder.path().join("order.json");
    fs::write(&file, "{\"a\": 1}").unwrap();
    let add =
        format!("ops add http://{upstream}/ -d @order.json --idempotency-key k --expires-after 1h");
    let first = id_in(&served.ask_with(&add, &[]));
    assert_eq!(id_in(&served.ask_with(&add, &[])), first);
    fs::write(&file, "{\"a\": 2}").unwrap();
    assert_snapshot!(served.ask_with(&add, &[]), @"
    exit 2
    --- stderr
    error: the idempotency key was used for another request
    ");
    assert_snapshot!(served.ask_with(&add.replace("order.json", "missing"), &[]), @"
    exit 2
    --- stderr
    error: `-d`: cannot read `missing`: No such file or directory (os error 2)
    ");
    fs::write(&file, [0xff]).unwrap();
    assert_snapshot!(served.ask_with(&add, &[]), @"
    exit 2
    --- stderr
    error: `-d`: it is not UTF-8 text; send it to the gateway with `Prefer: respond-async` instead
    ");
    assert_snapshot!(served.ops("add ftp://x --type y --priority 101"), @"
    exit 2
    --- stderr
    error: `type` is `y`, expected a configured type: `default`; `url` is `ftp://x`, expected a URL that begins with `http://` or `https://`; `priority` is `101`, expected a number from -100 to 100
    ");
    assert_snapshot!(served.ops("add http://10.0.0.1/secret"), @"
    exit 1
    --- stderr
    error: `10.0.0.1` is not a public address; allow it in `[network]` if that is meant
    ");
    assert_snapshot!(stable(&served.ask_with("ops add http://a.example.com", &["-H", "secret"])), @"
    exit 2
    --- stderr
    error: `-H` number 1 has no `:`, expected NAME: VALUE
    hint: for example `-H 'content-type: text/plain'`
    ");
}

#[test]
fn retries_and_cancels_by_id_and_by_filter() {
    let (served, upstream) = served();
    let rejected = format!("http://{upstream}/rejected -d x");
    let id = served.deliver(&rejected, &[]);
    served.deliver(&rejected, &[]);
    assert_snapshot!(served.ops("retry"), @"
    exit 2
    --- stderr
    error: `tidegate ops retry` needs ids, a filter or `--all`
    hint: `tidegate ops retry --all --dry-run` counts them first
    ");
    assert_snapshot!(served.ops("cancel --all"), @"
    exit 2
    --- stderr
    error: `tidegate ops cancel` without ids needs `--state`
    hint: for example `--state retryable`; `tidegate ops list` shows the states
    ");
    assert_snapshot!(served.ops(&format!("retry {id} --state failed")), @"
    exit 2
    --- stderr
    error: ids and a filter cannot be used together
    hint: `tidegate ops retry ID…`, or a filter alone
    ");
    assert_snapshot!(served.ops("retry --state failed --reason rejected --dry-run"), @"
    exit 0
    --- stdout
    failed operations that match: 2; none was changed
    ");
    assert_snapshot!(served.ops("retry --reason exhausted"), @"
    exit 0
    --- stdout
    failed operations that match: 0; sent again: 0
    ");
    assert_snapshot!(served.ops("retry --state conflict"), @"
    exit 2
    --- stderr
    error: `filter.state` is `conflict`, expected one of `failed`, `retryable`, `cancelled`
    ");
    assert_snapshot!(served.ops(&format!("cancel {id} op_unknown")), @"
    exit 1
    --- stdout
    ID: cancelled
    --- stderr
    error: `op_unknown`: there is no operation `op_unknown`; completed and cancelled ones are deleted after `retain`
    hint: `tidegate ops list` shows which there are
    ");
    assert_snapshot!(served.ops(&format!("cancel {id}")), @"
    exit 1
    --- stderr
    error: `ID`: cannot cancel an operation that is cancelled
    ");
    assert_snapshot!(served.ops("cancel --state failed"), @"
    exit 0
    --- stdout
    failed operations that match: 1; cancelled: 1
    ");
    let all = served.json("ops retry --all --dry-run");
    assert_eq!(
        all,
        serde_json::json!({
            "matched": 0, "will": 0, "changed": 0, "left_out": [], "dry_run": true,
        })
    );
}

#[test]
fn shows_and_resolves_a_conflict() {
    let (served, upstream) = served();
    let url = format!("http://{upstream}/conflict");
    let ours = [
        "-d",
        "{\"ours\":1}",
        "--base",
        "{\"base\":1}",
        "--resource",
        &*url,
    ];
    let id = served.deliver(&format!("-X PUT {url}"), &ours);
    assert_eq!(served.json(&format!("ops show {id}"))["state"], "conflict");
    let show = served.ops(&format!("show {id} --conflict"));
    let documents = &show[show.find("\nbase:").unwrap()..show.find("\ntheirs:").unwrap()];
    assert_snapshot!(documents, @r#"
    base:
    {"base":1}

    ours:
    {"ours":1}
    "#);
    let documents = served.json(&format!("ops show {id} --conflict"))["documents"].clone();
    assert_eq!(documents["ours"], serde_json::json!({ "ours": 1 }));
    assert_snapshot!(served.ops(&format!("retry {id}")), @"
    exit 1
    --- stderr
    error: `ID`: cannot retry an operation in conflict
    ");
    assert_snapshot!(served.ops(&format!("resolve {id} replace")), @"
    exit 2
    --- stderr
    error: `replace` needs `-d BODY`, what to send instead
    hint: `tidegate ops show ID --conflict` prints base, ours and theirs
    ");
    assert_snapshot!(served.ops(&format!("resolve {id} resend -d x")), @"
    exit 2
    --- stderr
    error: `-d` is used by `replace` only
    hint: `tidegate ops show ID --conflict` prints base, ours and theirs
    ");
    assert_snapshot!(served.ops(&format!("resolve {id} merge")), @"
    exit 2
    --- stderr
    error: `ACTION` is `merge`, expected one of `resend`, `discard`, `replace`
    hint: `tidegate ops resolve --help` shows what it takes
    ");
    assert_snapshot!(stable(&served.ask_with(&format!("ops resolve {id} replace"), &["-d", "{\"merged\":1}"])), @"
    exit 0
    --- stdout
    ID: available
    ");
    for _ in 0..200 {
        if served.json(&format!("ops show {id}"))["state"] == "completed" {
            break;
        }
    }
    assert_snapshot!(served.ops(&format!("resolve {id} discard")), @"
    exit 1
    --- stderr
    error: cannot resolve an operation that is completed
    ");
    assert_snapshot!(served.ops(&format!("show {id} --conflict")), @"
    exit 1
    --- stderr
    error: the operation is in no conflict: it is completed
    ");
}

#[test]
fn uses_the_data_folder_when_no_server_runs() {
    let (mut served, upstream) = served();
    let id = served.deliver(&format!("http://{upstream}/rejected -d x"), &[]);
    let data = served.data();
    let in_folder = |args: &str| {
        let output = tidegate(&format!("ops {args}"))
            .arg("--data")
            .arg(&data)
            .output()
            .unwrap();
        stable(&shown(&output)).replace(&*data.to_string_lossy(), "DATA")
    };
    assert_snapshot!(in_folder("list"), @"
    exit 1
    --- stderr
    error: a server uses the data folder `DATA`
    hint: leave out `--data` to ask that server, name its admin address with `--server URL`, or stop it
    ");
    served.kill();
    assert_snapshot!(in_folder("list"), @"
    exit 0
    --- stdout
    id  type  state  sent  age  request
    ID  default  failed: rejected  1  Ns  POST http://127.0.0.1:PORT/…
    ");
    assert_snapshot!(in_folder(&format!("retry {id}")), @"
    exit 0
    --- stdout
    ID: available
    ");
    assert_snapshot!(in_folder("add https://api.example.com/orders -d {}"), @"
    exit 0
    --- stdout
    ID: available; the next server sends it
    ");
    assert_snapshot!(in_folder("list --watch"), @"
    exit 2
    --- stderr
    error: `--watch` needs a running server: nothing changes in a data folder
    hint: start it with `tidegate serve`, or leave out `--watch`
    ");
    assert_snapshot!(in_folder("cancel --state available"), @"
    exit 0
    --- stdout
    available operations that match: 2; cancelled: 2
    ");
    let export = in_folder("export --state cancelled");
    assert_eq!(
        export.lines().filter(|line| line.starts_with('{')).count(),
        2
    );

    // By the settings alone.
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let settings = format!(
        "[server]\nadmin = \"{closed}\"\ndata = \"{}\"\n",
        data.display()
    );
    let file = served.folder.path().join("offline.toml");
    fs::write(&file, settings).unwrap();
    let output = tidegate("ops list --config").arg(&file).output().unwrap();
    let text = stable(&shown(&output)).replace(&*data.to_string_lossy(), "DATA");
    assert_snapshot!(text, @"
    exit 0
    --- stdout
    id  type  state  sent  age  request
    ID  default  cancelled  0  Ns  POST https://api.example.com/…
    ID  default  cancelled  0  Ns  POST http://127.0.0.1:PORT/…
    --- stderr
    warning: no server runs at http://127.0.0.1:PORT: using the data folder `DATA`
    ");
    assert_snapshot!(stable(&shown(&tidegate("ops list --data /nowhere").output().unwrap())), @"
    exit 1
    --- stderr
    error: there are no operations in `/nowhere`
    hint: a data folder has a file `tidegate.db`; `tidegate serve` makes it in `server.data`, or `--server URL` names a running server
    ");
}

#[test]
fn encrypts_what_is_added_to_a_data_folder() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    fs::write(&key, "0f".repeat(32)).unwrap();
    let settings = format!("[storage]\nkey = \"file:{}\"\n", key.display());
    let mut served = Served::with(&settings);
    served.kill();
    let data = served.data();
    let file = folder.path().join("tidegate.toml");
    fs::write(&file, settings).unwrap();
    let ops = |args: &str, input: &[u8]| {
        let (file, data) = (file.display(), data.display());
        let output = output(&format!("ops {args} --config {file} --data {data}"), input);
        stable(&shown(&output)).replace(&data.to_string(), "DATA")
    };
    assert_snapshot!(ops("add https://api.example.com/orders -d @-", b"canary"), @"
    exit 0
    --- stdout
    ID: available; the next server sends it
    ");
    let database = fs::read(data.join("tidegate.db")).unwrap();
    assert!(!database.windows(6).any(|part| part == b"canary"));
    assert_snapshot!(ops("list", b""), @"
    exit 0
    --- stdout
    id  type  state  sent  age  request
    ID  default  available  0  Ns  POST https://api.example.com/…
    ");
    // What a list shows is not encrypted.
    fs::write(&key, "1e".repeat(32)).unwrap();
    assert!(ops("list", b"").starts_with("exit 0"));
}
