//! TLS on both listeners: curl and OpenSSL as clients, commands of our own, and certificates that change.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use crate::client::{program, run};
use crate::servers::{Servers, TIMEOUT, pause};

/// Writes a certificate of this name that signs itself, and its key.
fn certify(folder: &Path, stem: &str, name: &str) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    fs::write(folder.join(format!("{stem}.pem")), made.cert.pem()).unwrap();
    let key = made.signing_key.serialize_pem();
    fs::write(folder.join(format!("{stem}.key")), key).unwrap();
}

/// Both listeners with the certificate `server` in the folder; more settings for that of the admin API.
fn start(admin: &str) -> Servers {
    Servers::start_with(&[], |folder| {
        certify(folder, "server", "localhost");
        certify(folder, "client", "operator");
        let file = |name: &str| format!("\"file:{}\"", folder.join(name).display());
        let tls = format!(
            "cert = {}, key = {}",
            file("server.pem"),
            file("server.key")
        );
        let admin = admin.replace("CLIENT", &file("client.pem"));
        format!(
            "[network]\nallow = [\"127.0.0.1/32\"]\n[server.tls]\n{}\n[server.admin_tls]\n{}{admin}\n",
            tls.replace(", ", "\n"),
            tls.replace(", ", "\n")
        )
    })
}

/// A command that asks the server, with its settings.
fn tidegate(servers: &Servers, words: &[&str]) -> Output {
    let folder = servers.folder.path();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command
        .args(words)
        .args(["--server", &servers.url("admin"), "--config"])
        .arg(folder.join("tidegate.toml"))
        .arg("--token-file")
        .arg(folder.join("data/admin-token"))
        .env("NO_COLOR", "1")
        .current_dir(folder)
        .stdin(Stdio::null());
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// curl, as a client that trusts the certificate in the folder.
fn curl(servers: &Servers, arguments: &[&str], address: &str) -> String {
    let port = address.rsplit(':').next().unwrap();
    let (port, path) = port.split_once('/').unwrap();
    let mut command = program("curl");
    command
        .args(["--disable", "--silent", "--show-error", "--max-time", "50"])
        .arg("--cacert")
        .arg(servers.folder.path().join("server.pem"))
        .args(arguments)
        .arg(format!("https://localhost:{port}/{path}"));
    run(&mut command).stdout
}

#[test]
fn curl_speaks_both_versions_of_http_over_tls() {
    let servers = start("");
    let gateway = servers.url("listening");
    assert!(gateway.starts_with("https://"), "{gateway}");
    let echo = format!("{gateway}/api/echo");
    for (flag, version) in [("--http2", "2"), ("--http1.1", "1.1")] {
        let written = [
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_version} %{http_code}",
        ];
        let said = curl(&servers, &[&[flag][..], &written[..]].concat(), &echo);
        assert_eq!(said, format!("{version} 200"));
    }
    // An upload over HTTP/2, and plain HTTP on the same port.
    let large = "x".repeat(200_000);
    fs::write(servers.folder.path().join("body"), &large).unwrap();
    let body = format!("@{}", servers.folder.path().join("body").display());
    let said = curl(&servers, &["--http2", "--data-binary", &body], &echo);
    assert!(said.contains("\"method\":\"POST\""), "{said}");
    let plain = echo.replace("https://", "http://");
    let said = run(program("curl").args(["--disable", "--silent", &plain])).stdout;
    assert!(said.contains("this port speaks TLS"), "{said}");
    servers.end();
}

#[test]
fn openssl_sees_the_certificate_and_no_old_version_of_tls() {
    let servers = start("");
    let gateway = servers.gateway();
    let connect = |more: &[&str]| {
        let mut command = program("openssl");
        command
            .args([
                "s_client",
                "-connect",
                &gateway,
                "-servername",
                "localhost",
                "-CAfile",
            ])
            .arg(servers.folder.path().join("server.pem"))
            .args(more)
            .stdin(Stdio::null());
        command.output().unwrap()
    };
    let shaken = text(&connect(&["-alpn", "h2,http/1.1", "-tls1_3"]).stdout);
    assert!(shaken.contains("ALPN protocol: h2"), "{shaken}");
    assert!(shaken.contains("Verify return code: 0 (ok)"), "{shaken}");
    let old = connect(&["-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0"]);
    assert!(!old.status.success(), "{}", text(&old.stdout));
    servers.end();
}

#[test]
fn commands_trust_the_certificate_of_the_settings() {
    let servers = start("");
    let listed = tidegate(&servers, &["gates"]);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    let console = servers.url("console");
    assert!(console.starts_with("https://"), "{console}");
    let shown = curl(&servers, &["--include"], &console);
    assert!(shown.to_ascii_lowercase().contains("text/html"), "{shown}");
    // A job is followed over TLS, too.
    let url = format!("http://{}/echo", servers.mock.address("listening"));
    let job = tidegate(&servers, &["jobs", "start", &url, "--wait"]);
    assert!(job.status.success(), "{job:?}");
    assert!(text(&job.stdout).contains("report: https://"), "{job:?}");
    // Another certificate than the server's.
    certify(servers.folder.path(), "server", "localhost");
    let refused = tidegate(&servers, &["gates"]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(
        said.contains("no TLS with the server at https://"),
        "{said}"
    );
    assert!(said.contains("SIGHUP"), "{said}");
    // Plain HTTP to a port that speaks TLS.
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let plain = servers.url("admin").replace("https://", "http://");
    command
        .args(["gates", "--server", &plain, "--token-file"])
        .arg(servers.folder.path().join("data/admin-token"))
        .env("NO_COLOR", "1");
    let said = text(&command.output().unwrap().stderr);
    assert!(said.contains("this port speaks TLS"), "{said}");
    servers.end();
}

#[test]
fn commands_show_a_certificate_to_an_admin_api_that_asks_for_one() {
    let servers = start("\nclient_ca = CLIENT");
    let folder = servers.folder.path();
    let file = |name: &str| folder.join(name).display().to_string();
    let (cert, key) = (file("client.pem"), file("client.key"));
    let shown = ["gates", "--client-cert", &cert, "--client-key", &key];
    let listed = tidegate(&servers, &shown);
    assert!(listed.status.success(), "{}", text(&listed.stderr));
    let refused = tidegate(&servers, &["gates"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let said = text(&refused.stderr);
    assert!(said.contains("--client-cert"), "{said}");
    let other = [
        "gates",
        "--client-cert",
        &cert,
        "--client-key",
        &file("server.key"),
    ];
    let refused = tidegate(&servers, &other);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(
        said.contains("of another certificate than `--client-cert`"),
        "{said}"
    );
    servers.end();
}

/// Waits until the server has logged this.
fn await_log(servers: &Servers, words: &str) {
    let start = Instant::now();
    while !servers.log().contains(words) {
        assert!(
            start.elapsed() < TIMEOUT,
            "never {words}: {}",
            servers.log()
        );
        pause();
    }
}

#[test]
fn a_reload_refuses_a_broken_pair_and_then_uses_a_renewed_one() {
    let servers = start("");
    let folder = servers.folder.path();
    let health = format!("{}/healthz", servers.url("admin"));
    let before = fs::read(folder.join("server.pem")).unwrap();
    // Half of a renewal: the certificate without its key.
    let key = fs::read(folder.join("server.key")).unwrap();
    certify(folder, "server", "localhost");
    let (renewed, renewed_key) = (
        fs::read(folder.join("server.pem")).unwrap(),
        fs::read(folder.join("server.key")).unwrap(),
    );
    fs::write(folder.join("server.key"), key).unwrap();
    servers.signal("HUP");
    await_log(
        &servers,
        "has the private key of another certificate than `cert`",
    );
    // The old one is still shown: a client that trusts only that is served.
    fs::write(folder.join("server.pem"), &before).unwrap();
    curl(&servers, &[], &health);
    fs::write(folder.join("server.pem"), renewed).unwrap();
    fs::write(folder.join("server.key"), renewed_key).unwrap();
    servers.signal("HUP");
    await_log(&servers, "the settings were reloaded");
    curl(&servers, &[], &health);
    let echo = format!("{}/api/echo", servers.url("listening"));
    let said = curl(&servers, &[], &echo);
    assert!(said.contains("\"method\":\"GET\""), "{said}");
    servers.end();
}

#[test]
fn a_server_with_a_broken_certificate_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("tidegate.toml");
    certify(folder.path(), "server", "localhost");
    let cert = folder.path().join("server.pem");
    let wrong = format!(
        "[server.tls]\ncert = \"file:{}\"\nkey = \"file:/nowhere.key\"\n",
        cert.display()
    );
    fs::write(&settings, wrong).unwrap();
    for command in ["serve", "check"] {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args([command, "--config"])
            .arg(&settings)
            .env("NO_COLOR", "1")
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command}: {said}");
        let expected =
            "tidegate.toml:3:7: `server.tls.key`: the file `/nowhere.key` cannot be read";
        assert!(said.contains(expected), "{command}: {said}");
    }
}
