//! Programs that use the gateway as their proxy: curl, git, pip, apt, Python's requests and Node, with
//! HTTP in absolute form and HTTPS in tunnels, at a server of their own on loopback.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use tempfile::TempDir;

use crate::client::{ClientOutput, of_python, program, run, script, start};
use crate::servers::{Servers, get};

const TOKEN: &str = "token-of-a-client-0123456789";

/// `localhost` may be reached by clients with a token. Nothing is paced.
fn settings(folder: &Path) -> String {
    fs::write(folder.join("token"), TOKEN).unwrap();
    let token = folder.join("token");
    format!(
        r#"
[gate]
strategy = "fixed"
initial_rate = 10000
[forward]
allow = ["localhost", "127.0.0.1"]
[network]
allow = ["127.0.0.0/8"]
[client.app]
token = "file:{}"
"#,
        token.display()
    )
}

/// A folder that is served over HTTP and HTTPS.
struct Site {
    child: Child,
    folder: TempDir,
    http: String,
    https: String,
}

impl Site {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        fs::write(folder.path().join("cert.pem"), made.cert.pem()).unwrap();
        let key = made.signing_key.serialize_pem();
        fs::write(folder.path().join("key.pem"), key).unwrap();
        fs::create_dir(folder.path().join("site")).unwrap();
        let mut command = of_python("python");
        command.arg(script("forward_site.py"));
        for name in ["site", "cert.pem", "key.pem"] {
            command.arg(folder.path().join(name));
        }
        let mut child = start(&mut command);
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let (http, https) = line.trim().split_once(' ').unwrap();
        Self {
            child,
            http: format!("http://localhost:{http}"),
            https: format!("https://localhost:{https}"),
            folder,
        }
    }

    fn ca(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    /// What is served.
    fn root(&self) -> PathBuf {
        self.folder.path().join("site")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// The gateway as programs name a proxy.
fn proxy(servers: &Servers) -> String {
    format!("http://app:{TOKEN}@{}", servers.gateway())
}

/// How many requests of this kind succeeded.
fn successes(servers: &Servers, route: &str) -> u64 {
    let token = format!("authorization: bearer {}", servers.token());
    let metrics = get(&servers.admin(), "/metrics", &[&token]).body;
    let start = format!("tidegate_requests_total{{route=\"{route}\",outcome=\"success\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("{metrics}")).parse().unwrap()
}

/// A program whose environment names the proxy.
fn proxied(mut command: Command, servers: &Servers, site: &Site) -> Command {
    for name in ["http_proxy", "https_proxy", "HTTPS_PROXY"] {
        command.env(name, proxy(servers));
    }
    for name in [
        "CURL_CA_BUNDLE",
        "GIT_SSL_CAINFO",
        "PIP_CERT",
        "REQUESTS_CA_BUNDLE",
    ] {
        command.env(name, site.ca());
    }
    command
}

#[test]
fn curl_uses_it_for_http_and_https() {
    let servers = Servers::start_with(&[], settings);
    let site = Site::start();
    let curl = |arguments: &[&str]| {
        let mut command = proxied(program("curl"), &servers, &site);
        command.args(["--disable", "--silent", "--show-error", "--max-time", "50"]);
        let ClientOutput { stdout, .. } = run(command.args(arguments));
        stdout
    };
    let write = [
        "--write-out",
        "%{http_code} %{http_connect} %header{tidegate-attempts}",
    ];
    for (url, expected) in [
        (&site.http, "hello\n200 000 1"),
        (&site.https, "hello\n200 200 "),
    ] {
        let url = format!("{url}/hello.txt");
        assert_eq!(curl(&[write[0], write[1], &url]), expected);
    }
    // A tunnel for plain HTTP, to the mock of the pool.
    let mock = format!("http://{}/echo", servers.mock.address("listening"));
    let echo = curl(&["--proxytunnel", &mock]);
    assert!(
        echo.contains("\"path\":\"/echo\"") && !echo.contains("tidegate"),
        "{echo}"
    );
    assert!(!echo.contains(TOKEN));
    // The whole request to the server is the proxy's to make.
    let echo = curl(&["--data", "x=1", &mock]);
    assert!(
        echo.contains("tidegate") && !echo.contains("proxy-authorization"),
        "{echo}"
    );
    let refused = curl(&[write[0], write[1], "http://example.com/"]);
    assert!(
        refused.contains("host_not_allowed") && refused.contains("403"),
        "{refused}"
    );
    let bare = ["--proxy", &format!("http://{}", servers.gateway())];
    let refused = curl(&[bare[0], bare[1], write[0], write[1], &mock]);
    assert!(
        refused.contains("no_token") && refused.contains("407"),
        "{refused}"
    );
    assert_eq!(successes(&servers, "_forward"), 2);
    assert_eq!(successes(&servers, "_connect"), 2);
    servers.end();
}

#[test]
fn requests_and_node_use_it() {
    let servers = Servers::start_with(&[], settings);
    let site = Site::start();
    for (mut command, name) in [
        (of_python("python"), "requests_proxy.py"),
        (program("node"), "node_proxy.mjs"),
    ] {
        command.arg(script(name)).arg(proxy(&servers));
        run(command.args([&site.http, &site.https]).arg(site.ca()));
    }
    assert_eq!(successes(&servers, "_forward"), 2);
    assert_eq!(successes(&servers, "_connect"), 2);
    servers.end();
}

#[test]
fn git_clones_through_it() {
    let servers = Servers::start_with(&[], settings);
    let site = Site::start();
    let folder = site.folder.path();
    let git = |arguments: &[&str]| {
        let mut command = proxied(program("git"), &servers, &site);
        command.current_dir(folder).env("HOME", folder);
        for (name, value) in [("NAME", "a"), ("EMAIL", "a@example.com")] {
            command.env(format!("GIT_AUTHOR_{name}"), value);
            command.env(format!("GIT_COMMITTER_{name}"), value);
        }
        run(command
            .args(["-c", "init.defaultBranch=main"])
            .args(arguments))
    };
    git(&["init", "--quiet", "work"]);
    fs::write(folder.join("work/file"), "content").unwrap();
    git(&["-C", "work", "add", "file"]);
    git(&["-C", "work", "commit", "--quiet", "--message", "first"]);
    let bare = site.root().join("repository.git");
    git(&["clone", "--quiet", "--bare", "work", bare.to_str().unwrap()]);
    git(&["-C", bare.to_str().unwrap(), "update-server-info"]);
    for (url, name) in [(&site.http, "over-http"), (&site.https, "over-https")] {
        git(&["clone", "--quiet", &format!("{url}/repository.git"), name]);
        let file = fs::read_to_string(folder.join(name).join("file")).unwrap();
        assert_eq!(file, "content");
    }
    assert!(successes(&servers, "_forward") >= 2);
    assert!(successes(&servers, "_connect") >= 1);
    servers.end();
}

#[test]
fn pip_downloads_through_it() {
    let servers = Servers::start_with(&[], settings);
    let site = Site::start();
    let mut command = proxied(of_python("python"), &servers, &site);
    command.current_dir(site.folder.path());
    command.args([
        "-m",
        "pip",
        "--isolated",
        "--disable-pip-version-check",
        "--no-cache-dir",
    ]);
    command
        .args(["--proxy", &proxy(&servers), "--cert"])
        .arg(site.ca());
    command.args(["download", "--quiet", "--no-deps", "tidegate-sample"]);
    run(command.args(["--index-url", &format!("{}/simple/", site.https)]));
    let wheel = "tidegate_sample-1.0-py3-none-any.whl";
    assert!(site.folder.path().join(wheel).exists());
    assert!(successes(&servers, "_connect") >= 1);
    servers.end();
}

#[test]
fn apt_updates_through_it() {
    let servers = Servers::start_with(&[], settings);
    let site = Site::start();
    let folder = site.folder.path();
    for name in ["lists/partial", "cache/archives/partial", "etc/parts"] {
        fs::create_dir_all(folder.join(name)).unwrap();
    }
    fs::write(folder.join("status"), "").unwrap();
    let source = format!("deb [trusted=yes] {}/apt ./\n", site.http);
    fs::write(folder.join("etc/sources.list"), source).unwrap();
    let folder = folder.to_str().unwrap();
    let mut command = program("apt-get");
    for option in [
        format!("Acquire::http::Proxy={}", proxy(&servers)),
        format!("Dir::State::lists={folder}/lists"),
        format!("Dir::State::status={folder}/status"),
        format!("Dir::Cache={folder}/cache"),
        format!("Dir::Etc::sourcelist={folder}/etc/sources.list"),
        format!("Dir::Etc::sourceparts={folder}/etc/parts"),
        "Acquire::Languages=none".to_owned(),
        "APT::Sandbox::User=root".to_owned(),
    ] {
        command.args(["--option", &option]);
    }
    let ClientOutput { stdout, .. } = run(command.arg("update"));
    assert!(stdout.contains("/apt ./ Packages"), "{stdout}");
    assert!(successes(&servers, "_forward") >= 1);
    servers.end();
}
