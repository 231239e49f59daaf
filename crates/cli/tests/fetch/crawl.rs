//! A crawl of a site from a real generator, compared with wget2.
//!
//! The site is the documentation of `tidegate-policy` as rustdoc makes it, served by Python. Both
//! programs start at the same page, and the server's log says what they requested. wget2 also requests
//! what pages load: scripts, styles, fonts and pictures. That is the only difference.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{folder, tidegate_fetch};

#[test]
fn finds_the_same_pages_of_a_rustdoc_site_as_wget2() {
    let site = documentation();
    let ours = requested(&site, |start, folder| {
        // Python's server queues few connections.
        let args = ["--quiet", "--crawl", "--same-host", "--depth", "50"];
        let mut fetch = tidegate_fetch(folder, &args);
        fetch.args(["--concurrency", "4", start]);
        fetch
    });
    let theirs = requested(&site, |start, folder| {
        let mut wget2 = Command::new("wget2");
        wget2
            .args(["--no-config", "--quiet", "--recursive", "--level=50"])
            .args(["--follow-tags=a/href", start])
            .current_dir(folder);
        wget2
    });
    assert!(ours.len() > 100, "{ours:#?}");
    let only_ours: Vec<_> = ours.difference(&theirs).collect();
    assert_eq!(only_ours, Vec::<&String>::new());
    let missed = theirs.difference(&ours).filter(|path| !is_loaded(path));
    assert_eq!(missed.collect::<Vec<_>>(), Vec::<&String>::new());
}

/// Is it a file that pages load and do not link to?
fn is_loaded(path: &str) -> bool {
    let extension = path.rsplit('.').next();
    extension.is_some_and(|extension| ["css", "js", "png", "svg", "woff2"].contains(&extension))
}

/// The documentation, made by rustdoc.
fn documentation() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    // Not the target folder of the tests, which Cargo may have locked.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("documentation");
    let made = Command::new(env!("CARGO"))
        .args(["doc", "--quiet", "--locked", "--no-deps"])
        .args(["--package", "tidegate-policy", "--target-dir"])
        .arg(&target)
        .current_dir(workspace)
        .status();
    assert!(made.unwrap().success());
    target.join("doc")
}

/// What a crawl of the site requests.
fn requested(site: &Path, crawl: impl Fn(&str, &Path) -> Command) -> BTreeSet<String> {
    let folder = folder("[gate]\nenabled = false\n");
    let log = folder.path().join("log");
    let mut server = PythonServer::start(site, &log);
    let start = format!(
        "http://127.0.0.1:{}/tidegate_policy/index.html",
        server.port
    );
    let mut command = crawl(&start, folder.path());
    let output = command.output().unwrap_or_else(|error| {
        panic!("cannot run {command:?}: {error}\nhint: scripts/install-clients installs it")
    });
    server.stop();
    let log = fs::read_to_string(log).unwrap();
    let requests = log.lines().filter_map(|line| line.split('"').nth(1));
    let paths = requests.filter_map(|request| request.strip_prefix("GET "));
    let paths: BTreeSet<String> = paths
        .filter_map(|path| path.split(' ').next())
        .filter(|path| *path != "/robots.txt")
        .map(str::to_owned)
        .collect();
    assert!(!paths.is_empty(), "{command:?}: {output:?}");
    paths
}

/// `python3 -m http.server` on a free port.
struct PythonServer {
    process: Child,
    port: u16,
}

impl PythonServer {
    fn start(site: &Path, log: &Path) -> Self {
        let mut process = Command::new("python3")
            .args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "0"])
            .current_dir(site)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(log).unwrap())
            .spawn()
            .unwrap();
        // "Serving HTTP on 127.0.0.1 port 40123 (http://127.0.0.1:40123/) ..."
        let mut line = String::new();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let port = line.split(' ').nth(5).unwrap_or_else(|| panic!("{line}"));
        let port = port.parse().unwrap();
        Self { process, port }
    }

    fn stop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

impl Drop for PythonServer {
    fn drop(&mut self) {
        self.stop();
    }
}
