//! A pool whose requests carry a token: fetched before the first request, and once more for all when
//! the server does not accept it any longer.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use app::core::Core;
use app::gateway::Gateway;
use app::log::Log;
use app::settings::{Environment, Settings, Sources};
use app::state::State;
use store::Store;
use tidegate::Clock;

/// A server that answers each request with what `answer` makes of its head and body.
fn serve(answer: impl Fn(&str, &str) -> (u16, String) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let answer = Arc::clone(&answer);
            thread::spawn(move || while serve_one(stream.as_ref().unwrap(), &*answer).is_some() {});
        }
    });
    address
}

fn serve_one(stream: &TcpStream, answer: &dyn Fn(&str, &str) -> (u16, String)) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.to_lowercase().lines().find_map(|line| {
        let length = line.strip_prefix("content-length:")?;
        length.trim().parse::<usize>().ok()
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).ok()?;
    let (status, text) = answer(&head, &String::from_utf8_lossy(&body));
    let length = text.len();
    let mut stream = stream;
    write!(
        stream,
        "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{text}"
    )
    .ok()
}

struct Variables;

impl Environment for Variables {
    fn variables(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn variable(&self, name: &str) -> Option<String> {
        Some(format!("value-of-{name}"))
    }

    fn read(&self, _: &std::path::Path) -> std::io::Result<Vec<u8>> {
        Err(std::io::ErrorKind::NotFound.into())
    }
}

fn gateway(api: SocketAddr, shop: SocketAddr) -> (Arc<State>, Gateway) {
    gateway_with(api, shop, "FIRST", Store::memory())
}

fn gateway_with(
    api: SocketAddr,
    token_endpoint: SocketAddr,
    refresh_token: &str,
    store: Store,
) -> (Arc<State>, Gateway) {
    let refresh = format!(
        r#"kind = "oauth2_refresh", token_url = "http://{token_endpoint}/token", client_id = "env:ID", client_secret = "env:SECRET", refresh_token = "env:{refresh_token}""#
    );
    gateway_of(api, &refresh, store)
}

/// A gateway whose token is refreshed like this.
fn gateway_of(api: SocketAddr, refresh: &str, store: Store) -> (Arc<State>, Gateway) {
    let file = format!(
        r#"
        [gate]
        initial_rate = 1000
        [pool.crm]
        credential = "crm"
        endpoints = [{{ name = "a", url = "http://{api}/v2" }}]
        [credential.crm]
        refresh = {{ {refresh} }}
        "#
    );
    let sources = Sources {
        file: Some(("tidegate.toml".to_owned(), file.into_bytes())),
        flags: Vec::new(),
    };
    let settings = Settings::load(&sources, &Variables).unwrap();
    let settings = Arc::new(settings);
    let core = Core::new(&settings, Log::silent(), Clock::system(), 2);
    let (state, warnings) = State::restore(core, settings, store).unwrap();
    assert_eq!(warnings, [""; 0]);
    let gateway = Gateway::start(Arc::clone(&state), "127.0.0.1:0".parse().unwrap()).unwrap();
    (state, gateway)
}

fn get(gateway: SocketAddr) -> String {
    let mut stream = TcpStream::connect(gateway).unwrap();
    let request = "GET /crm/items HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_token_is_bought_once_for_all_and_anew_when_it_has_expired() {
    let bought = Arc::new(AtomicU32::new(0));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let valid = Arc::new(AtomicU32::new(1));
    let shop = {
        let (bought, asked) = (Arc::clone(&bought), Arc::clone(&asked));
        serve(move |head, body| {
            assert!(head.starts_with("POST /token "), "{head}");
            asked.lock().unwrap().push(body.to_owned());
            let number = bought.fetch_add(1, Ordering::SeqCst) + 1;
            let next = format!("refresh-{number}");
            (
                200,
                format!(r#"{{"access_token":"t{number}","refresh_token":"{next}"}}"#),
            )
        })
    };
    let api = {
        let valid = Arc::clone(&valid);
        serve(move |head, _| {
            let expected = format!(
                "authorization: Bearer t{}\r\n",
                valid.load(Ordering::SeqCst)
            );
            match head.starts_with("GET /v2/items ") && head.contains(&expected) {
                true => (200, "items".to_owned()),
                false => (401, "expired".to_owned()),
            }
        })
    };
    let (_state, gateway) = gateway(api, shop);
    let address = gateway.address();
    assert!(get(address).starts_with("HTTP/1.1 200 "));
    assert_eq!(bought.load(Ordering::SeqCst), 1);
    valid.store(2, Ordering::SeqCst);
    let callers: Vec<_> = (0..10)
        .map(|_| thread::spawn(move || get(address)))
        .collect();
    for caller in callers {
        assert!(caller.join().unwrap().starts_with("HTTP/1.1 200 "));
    }
    assert_eq!(bought.load(Ordering::SeqCst), 2);
    let asked = asked.lock().unwrap();
    assert_eq!(
        asked[0],
        "grant_type=refresh_token&refresh_token=value-of-FIRST&client_id=value-of-ID&client_secret=value-of-SECRET"
    );
    assert!(
        asked[1].contains("refresh_token=refresh-1&"),
        "{}",
        asked[1]
    );
}

#[test]
fn a_rotated_refresh_token_is_used_after_a_restart_unless_another_is_configured() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let token_endpoint = {
        let asked = Arc::clone(&asked);
        serve(move |_, body| {
            let mut asked = asked.lock().unwrap();
            let token = body
                .split('&')
                .find(|pair| pair.starts_with("refresh_token="));
            asked.push(token.unwrap().to_owned());
            let number = asked.len();
            let text = format!(r#"{{"access_token":"t","refresh_token":"rotated-{number}"}}"#);
            (200, text)
        })
    };
    let api = serve(|_, _| (200, "items".to_owned()));
    let folder = tempfile::tempdir().unwrap();
    for configured in ["FIRST", "FIRST", "FIRST", "SECOND", "SECOND", "FIRST"] {
        let store = Store::open(folder.path()).unwrap();
        let (state, gateway) = gateway_with(api, token_endpoint, configured, store);
        assert!(get(gateway.address()).starts_with("HTTP/1.1 200 "));
        gateway.drain();
        while !gateway.is_done() {
            thread::yield_now();
        }
        drop(gateway);
        // The folder is free when the last clone of the store is dropped.
        let mut state = Some(state);
        while let Some(rest) = state.take() {
            state = Arc::try_unwrap(rest).err();
        }
    }
    assert_eq!(
        *asked.lock().unwrap(),
        [
            "refresh_token=value-of-FIRST",
            "refresh_token=rotated-1",
            "refresh_token=rotated-2",
            "refresh_token=value-of-SECOND",
            "refresh_token=rotated-4",
            "refresh_token=value-of-FIRST",
        ]
    );
}

#[test]
fn a_401_is_passed_on_when_a_new_token_does_not_help_either() {
    let shop = serve(|_, _| (200, r#"{"access_token":"t"}"#.to_owned()));
    let api = serve(|_, _| (401, "no".to_owned()));
    let (_state, gateway) = gateway(api, shop);
    let answer = get(gateway.address());
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    assert!(answer.contains("tidegate-attempts: 2\r\n"), "{answer}");
    assert!(answer.ends_with("no"), "{answer}");
}

#[test]
fn requests_a_token_with_the_credentials_of_the_client() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let token_endpoint = {
        let asked = Arc::clone(&asked);
        serve(move |head, body| {
            assert!(head.starts_with("POST /token "), "{head}");
            let mut asked = asked.lock().unwrap();
            asked.push(body.to_owned());
            // A refresh token does not belong here (RFC 6749 section 4.4.3), and is not used.
            let number = asked.len();
            (
                200,
                format!(r#"{{"access_token":"t{number}","refresh_token":"no"}}"#),
            )
        })
    };
    let api = serve(
        |head, _| match head.contains("authorization: Bearer t2\r\n") {
            true => (200, "items".to_owned()),
            false => (401, "expired".to_owned()),
        },
    );
    let refresh = format!(
        r#"kind = "client_credentials", token_url = "http://{token_endpoint}/token", client_id = "env:ID", client_secret = "env:SECRET""#
    );
    let (_state, gateway) = gateway_of(api, &refresh, Store::memory());
    assert!(get(gateway.address()).starts_with("HTTP/1.1 200 "));
    let body = "grant_type=client_credentials&client_id=value-of-ID&client_secret=value-of-SECRET";
    assert_eq!(*asked.lock().unwrap(), [body, body]);
}

#[test]
fn runs_a_command_once_for_all_requests_and_sends_what_it_prints() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    let valid = Arc::new(AtomicU32::new(1));
    let api = {
        let valid = Arc::clone(&valid);
        serve(move |head, _| {
            let number = valid.load(Ordering::SeqCst);
            match head.contains(&format!("authorization: Bearer t{number}\r\n")) {
                true => (200, "items".to_owned()),
                false => (401, "expired".to_owned()),
            }
        })
    };
    let script = r#"echo run >> $0; echo "t$(grep -c run $0)""#;
    let refresh = format!(
        r#"kind = "command", command = ["sh", "-c", '{script}', "{}"]"#,
        runs.display()
    );
    let (_state, gateway) = gateway_of(api, &refresh, Store::memory());
    let address = gateway.address();
    assert!(get(address).starts_with("HTTP/1.1 200 "));
    valid.store(2, Ordering::SeqCst);
    let callers: Vec<_> = (0..10)
        .map(|_| thread::spawn(move || get(address)))
        .collect();
    for caller in callers {
        assert!(caller.join().unwrap().starts_with("HTTP/1.1 200 "));
    }
    assert_eq!(std::fs::read_to_string(runs).unwrap(), "run\nrun\n");
}

#[test]
fn passes_a_401_on_when_the_command_fails() {
    let api = serve(|head, _| {
        assert!(!head.contains("authorization"), "{head}");
        (401, "no".to_owned())
    });
    let refresh = r#"kind = "command", command = ["sh", "-c", "echo token; exit 1"]"#;
    let (_state, gateway) = gateway_of(api, refresh, Store::memory());
    let response = get(gateway.address());
    assert!(response.starts_with("HTTP/1.1 401 "), "{response}");
    assert!(response.contains("tidegate-attempts: 1\r\n"), "{response}");
}
