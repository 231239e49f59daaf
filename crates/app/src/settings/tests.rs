//! Settings as they are written, right and wrong.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use insta::assert_snapshot;
use proptest::prelude::*;

use super::default_file::with_examples;
use super::*;

/// Files and variables of a test.
#[derive(Debug, Default)]
pub(crate) struct Made {
    files: BTreeMap<String, Vec<u8>>,
    variables: Vec<(String, String)>,
}

impl Environment for Made {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let file = self.files.get(&*path.to_string_lossy()).cloned();
        file.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn variables(&self) -> Vec<(String, String)> {
        self.variables.clone()
    }
}

impl Made {
    fn with(variables: &[(&str, &str)]) -> Self {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self {
            variables: variables.iter().map(own).collect(),
            ..Self::default()
        }
    }

    /// Whatever the documents refer to.
    fn complete() -> Self {
        let names = [
            "KEY_A",
            "APP1_TOKEN",
            "CRM_ID",
            "CRM_SECRET",
            "HOOK_SECRET",
            "OTLP_TOKEN",
            "S",
            "R",
        ];
        let variables = names.map(|name| (name.to_owned(), format!("the value of {name}")));
        let url = (
            "OPERATIONS_URL".to_owned(),
            "postgres://u:p@db/x".to_owned(),
        );
        let files = ["/run/secrets/b", "/run/secrets/crm"];
        let files = files.map(|name| (name.to_owned(), b"from a file\n".to_vec()));
        let (certificate, key) = certified();
        let tls = [("cert", certificate), ("ca", certificate), ("key", key)];
        let tls = tls.map(|(name, pem)| {
            let path = format!("/etc/tls/{name}.pem");
            (path, pem.clone().into_bytes())
        });
        Self {
            files: files.into_iter().chain(tls).collect(),
            variables: variables.into_iter().chain([url]).collect(),
        }
    }
}

/// A certificate and its key, the same for all tests of a process.
fn certified() -> (&'static String, &'static String) {
    static CERTIFIED: OnceLock<(String, String)> = OnceLock::new();
    let (certificate, key) = CERTIFIED.get_or_init(|| {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    });
    (certificate, key)
}

fn load_from(text: &str, made: &Made, flags: &[(&str, &str)]) -> Result<Settings, Vec<Problem>> {
    let flags = flags.iter().map(|(path, value)| Flag {
        name: format!("--set {path}"),
        path: (*path).to_owned(),
        value: (*value).to_owned(),
    });
    let sources = Sources {
        file: Some(("t.toml".to_owned(), text.as_bytes().to_vec())),
        flags: flags.collect(),
    };
    Settings::load(&sources, made)
}

/// Settings that are right.
#[track_caller]
pub(crate) fn load(text: &str) -> Settings {
    load_from(text, &Made::complete(), &[]).unwrap()
}

/// Everything that is said about settings that are wrong.
fn problems(text: &str) -> String {
    problems_with(text, &Made::complete(), &[])
}

fn problems_with(text: &str, made: &Made, flags: &[(&str, &str)]) -> String {
    let problems = load_from(text, made, flags).unwrap_err();
    let shown = format!("{problems:?}");
    assert!(!shown.contains("SECRET"), "{shown}");
    problems
        .iter()
        .map(|problem| format!("{problem}\n"))
        .collect()
}

#[test]
fn reads_the_default_file_as_the_defaults() {
    assert_eq!(load(&default_file()), Settings::default());
    assert_eq!(load(""), Settings::default());
}

#[test]
fn reads_all_examples_of_the_default_file() {
    let settings = load(&with_examples());
    let pool = &settings.pools["llm"];
    assert_eq!(pool.endpoints.len(), 2);
    assert_eq!(
        pool.endpoints[0].headers[0].1.expose(),
        "Bearer the value of KEY_A"
    );
    assert_eq!(pool.endpoints[1].headers[0].1.expose(), "from a file");
    assert_eq!(
        pool.protection,
        LadderOptions {
            enabled: Some(true),
            ..Default::default()
        }
        .build()
        .unwrap()
    );
    let plain = load("[pool.llm]\nendpoints = [{ name = 'a', url = 'https://a.example.com' }]");
    let plain = &plain.pools["llm"];
    assert_eq!(
        (pool.balance, &pool.backoff, pool.retry_unsafe),
        (plain.balance, &plain.backoff, plain.retry_unsafe),
        "what the reference calls the default"
    );
    assert_eq!(settings.operation("user_login").backoff, "aggressive");
    assert_eq!(settings.operation("no such type").backoff, "standard");
    let (_, host) = settings.gates.iter().next().unwrap();
    assert_eq!(host.rules.len(), 1);
    assert!(host.share);
    assert!(settings.credentials["crm"].refresh.is_some());
}

/// Every setting of every section, once.
fn all_settings() -> Vec<(&'static str, &'static policy::setting::Setting)> {
    fn collect(
        section: &'static config::schema::Section,
        found: &mut BTreeMap<&'static str, &'static config::schema::Section>,
    ) {
        if found.insert(section.path, section).is_none() {
            let inner = section
                .tables
                .iter()
                .filter_map(|inner| section.inner(inner.name));
            for section in inner.chain(section.named.map(|named| named.section)) {
                collect(section, found);
            }
        }
    }
    let mut found = BTreeMap::new();
    collect(&ROOT, &mut found);
    let settings = found.into_iter();
    settings
        .flat_map(|(path, section)| section.settings().map(move |setting| (path, setting)))
        .collect()
}

#[test]
fn every_default_and_example_is_a_value_of_its_kind() {
    for (path, setting) in all_settings() {
        for text in [setting.default, setting.aimd, setting.example]
            .into_iter()
            .flatten()
        {
            let problems = setting.kind.check(setting.name, &setting.kind.split(text));
            assert!(problems.is_empty(), "{path}: {problems:?}");
        }
    }
}

#[test]
fn the_default_file_has_every_setting_with_its_description() {
    let file = default_file();
    for (path, setting) in all_settings() {
        let name = setting.name;
        let is_in_line = [
            "server.tls",
            "operation.TYPE.webhook",
            "rule.header",
            "pool.NAME.endpoints",
        ];
        if is_in_line.contains(&path) || (setting.default, setting.example) == (None, None) {
            assert!(file.contains(name), "{path}.{name}");
            continue;
        }
        let is_host = path == "gate.HOST" && name != "share";
        let description = default_file::description(setting);
        assert!(
            is_host || file.contains(&format!("# {description}\n")),
            "{path}.{name}"
        );
        assert!(description.ends_with('.'), "{path}.{name}: {description}");
    }
    assert!(file.lines().all(|line| line.chars().count() <= 140));
}

#[test]
fn reads_headers_of_exports_and_refuses_literal_tokens() {
    let headers =
        "[telemetry]\nheaders = { authorization = \"Bearer env:OTLP_TOKEN\", x-scope = \"7\" }";
    let expected = [
        ("authorization", "Bearer the value of OTLP_TOKEN"),
        ("x-scope", "7"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), Secret::new(value)));
    assert_eq!(load(headers).telemetry_headers, expected);
    assert_snapshot!(problems(
        "[telemetry]\nheaders = { authorization = \"Bearer SECRET\", host = \"a\" }"
    ), @r"
    t.toml:2:29: `telemetry.headers.authorization`: a secret must not be written out, expected `env:NAME` or `file:PATH`
    t.toml:2:53: `telemetry.headers.host` is set for every request anyway, expected another header
    ");
}

#[test]
fn shows_no_secret() {
    let shown = format!("{:?}", load(&with_examples()));
    for secret in ["value of", "from a file", "u:p@db"] {
        assert!(!shown.contains(secret), "{secret}");
    }
}

#[test]
fn reports_every_problem_in_one_run() {
    assert_snapshot!(problems("
        [server]
        listen = 7070
        admin = '127.0.0.1'
        [gate]
        max_wait = 30
        max_rat = 5
        max_in_flight = 0
        min_rate = -1
        window = '10 parsecs'
        limits = ['10', '5/1s', '6']
        max_rate = 1e99
        enabled = 'yes'
        shards = 3
        strategy = 'aimed'
        [gates]
        x = 1
        [http]
        max_body = '1 elephant'
        replay_buffer = 'none'
        [forward]
        allow = ['https://example.com', '*']
        [network]
        allow = ['10.1.2.3/8']
        [jobs]
        status_limit = '60'
        [trails]
        keep = 2026-01-01
        [backoff.mine]
        jitter = 'wild'
        max_attempts = 0
        [run]
        growth = 'cubic'
        [poll]
        other_retries = 1.5
    "), @r#"
    t.toml:3:18: `server.listen` is `7070`, expected a string such as `"127.0.0.1:7070"`, not a whole number
    t.toml:4:17: `server.admin` is `127.0.0.1`, expected an IP address and a port such as `127.0.0.1:7070` or `[::1]:7070`
    t.toml:6:20: `gate.max_wait` is `30`, expected a string with a number and a unit such as `"500ms"`, `"30s"` or `"5m"`, not a whole number
    t.toml:7:9: `gate.max_rat`: unknown setting; did you mean `max_rate`?
    t.toml:8:25: `gate.max_in_flight` is `0`, expected a whole number from 1 to 1000000
    t.toml:9:20: `gate.min_rate` is `-1`, expected a number of requests per second from 0.000001 to 1000000000
    t.toml:10:18: `gate.window` is `10 parsecs`, expected a number with a unit such as `500ms`, `30s` or `5m`
    t.toml:11:19: `gate.limits[0]` is `10`, expected a count and a period such as `10/1s` or `5000/1d`
    t.toml:11:33: `gate.limits[2]` is `6`, expected a count and a period such as `10/1s` or `5000/1d`
    t.toml:12:20: `gate.max_rate` is `1e99`, expected a number of requests per second from 0.000001 to 1000000000
    t.toml:13:19: `gate.enabled` is `yes`, expected `true` or `false`, not a string
    t.toml:14:18: `gate.shards` is `3`, expected a power of two from 1 to 65536
    t.toml:15:20: `gate.strategy` is `aimed`, expected `adaptive`, `aimd` or `fixed`; did you mean `aimd`?
    t.toml:16:10: `gates`: unknown setting; did you mean `gate`?
    t.toml:19:20: `http.max_body` is `1 elephant`, expected a number with a unit such as `64KiB` or `1MiB`, or `none`
    t.toml:20:25: `http.replay_buffer` is `none`, expected a size such as `1MiB`; a buffer in memory needs a bound
    t.toml:22:18: `forward.allow[0]` is `https://example.com`, expected a host without scheme and port, such as `api.example.com` or `*.example.com`
    t.toml:22:41: `forward.allow[1]` is `*`, expected a name of letters, digits, `-` and `_` with dots between
    t.toml:24:18: `network.allow[0]` is `10.1.2.3/8`, expected a network whose address ends with zeros, such as `10.1.0.0/16`
    t.toml:26:24: `jobs.status_limit` is `60`, expected a count and a period such as `10/1s` or `5000/1d`
    t.toml:28:16: `trails.keep` is `2026-01-01`, expected a whole number from 0 to 10000000, not a date
    t.toml:30:18: `backoff.mine.jitter` is `wild`, expected `none`, `full` or two factors in order such as `0.5..1.5`, the second above 0 and at most 10
    t.toml:31:24: `backoff.mine.max_attempts` is `0`, expected a whole number from 1 to 10000
    t.toml:33:18: `run.growth` is `cubic`, expected `linear` or `double`
    t.toml:35:25: `poll.other_retries` is `1.5`, expected a whole number from 0 to 1000, not a fraction
    "#);
}

#[test]
fn reports_denied_hosts_and_proxies_without_showing_passwords() {
    assert_snapshot!(problems("
        [forward]
        deny = ['10.1.2.3/8', 'a.*.com', '.example.com:8080']
        [network]
        proxy = 'http://user:SECRET@proxy.example.com'
    "), @r#"
    t.toml:3:17: `forward.deny[0]` is `10.1.2.3/8`, expected a network whose address ends with zeros, such as `10.1.0.0/16`
    t.toml:3:31: `forward.deny[1]` is `a.*.com`, expected a host such as `api.example.com`, `.example.com`, a network such as `10.0.0.0/8`, or `*`
    t.toml:3:42: `forward.deny[2]` is `.example.com:8080`, expected a host such as `api.example.com`, `.example.com`, a network such as `10.0.0.0/8`, or `*`
    t.toml:5:17: `network.proxy`: a password must not be written out, expected `env:NAME` or `file:PATH`
    "#);
    assert_snapshot!(problems("[network]\nproxy = 'https://proxy.example.com'"), @"t.toml:2:9: `network.proxy` is no address of a proxy, expected a URL that begins with `http://`: the connection to the proxy has no TLS");
}

#[test]
fn reports_contradictions_where_they_are_written() {
    assert_snapshot!(problems("
        [gate]
        min_rate = 5
        max_rate = 1
        [gate.'a.example.com']
        min_rate = 3
        [gate.'b.example.com']
        max_wait = '1s'
        [backoff.mine]
        base = '1m'
        max = '1s'
        [server]
        listen = '127.0.0.1:7071'
        [http]
        max_body = '1KiB'
        replay_buffer = '1MiB'
    "), @r#"
    t.toml:3:20: `gate.min_rate` is `5`, expected at most `max_rate` (1)
    t.toml:6:20: `gate."a.example.com".min_rate` is `3`, expected at most `max_rate` (1)
    t.toml:10:16: `backoff.mine.base` is `1m`, expected at most `max` (1s)
    t.toml:13:18: `server.listen` is `127.0.0.1:7071`, expected another address than `server.admin`
    t.toml:16:25: `http.replay_buffer` is `1MiB`, expected at most `max_body` (1KiB)
    "#);
}

#[test]
fn reports_names_given_twice() {
    assert_snapshot!(problems("
        [gate]
        max_rate = 1
        max_rate = 2
        max_wait = 5
        [gate.'a.example.com']
        [gate.'A.example.com.']
        [pool.llm]
        endpoints = [
          { name = 'a', url = 'https://a.example.com', headers = { accept = 'x', Accept = 'y' } },
          { name = 'a', url = 'https://b.example.com' },
        ]
        [pool.llm]
    "), @r#"
    t.toml:4:9: `max_rate` is given twice, expected once
    t.toml:5:20: `gate.max_wait` is `5`, expected a string with a number and a unit such as `"500ms"`, `"30s"` or `"5m"`, not a whole number
    t.toml:6:15: `gate."a.example.com"`: the host `a.example.com` has two sections, expected one
    t.toml:10:77: `pool.llm.endpoints[0].headers.accept` is given twice, in different letters; expected once
    t.toml:11:20: `pool.llm.endpoints[1].name` is `a`, expected a name that no other endpoint of the pool has
    t.toml:13:15: `llm` is given twice, expected once
    "#);
}

#[test]
fn refuses_names_of_missing_sections() {
    assert_snapshot!(problems("
        [pool.llm]
        backoff = 'standart'
        credential = 'crm'
        endpoints = []
        [operation.default]
        backoff = 'no'
    "), @r#"
    t.toml:3:19: `pool.llm.backoff` is `standart`, expected the name of a section `[backoff.NAME]`; did you mean `standard`?
    t.toml:4:22: `pool.llm.credential` is `crm`, expected the name of a section `[credential.NAME]`; there is none
    t.toml:5:21: `pool.llm.endpoints` is missing, expected at least one endpoint such as `{ name = "a", url = "https://a.example.com" }`
    t.toml:7:19: `operation.default.backoff` is `no`, expected the name of a section `[backoff.NAME]`: aggressive, background, conservative, crawl, standard, webhook
    "#);
}

#[test]
fn reads_what_each_kind_of_refresh_needs() {
    let refresh = |text: &str| {
        let settings = load(&format!("[credential.crm.refresh]\n{text}"));
        settings.credentials["crm"].refresh.clone().unwrap()
    };
    let endpoint = TokenEndpoint {
        url: "https://login.example.com/token".parse().unwrap(),
        client_id: Secret::new("app"),
        client_secret: Secret::new("the value of KEY_A"),
    };
    let text = "token_url = 'https://login.example.com/token'\nclient_id = 'app'\n\
                client_secret = 'env:KEY_A'\nrefresh_token = 'env:KEY_A'\n";
    assert_eq!(
        refresh(&format!("{text}kind = 'client_credentials'")),
        Refresh::ClientCredentials(endpoint.clone())
    );
    assert_eq!(
        refresh(&format!("{text}kind = 'oauth2_refresh'")),
        Refresh::OAuth2Refresh {
            endpoint,
            refresh_token: Secret::new("the value of KEY_A")
        }
    );
    let command = refresh("kind = 'command'\ncommand = ['print-token', '--key', 'k-123']");
    assert_eq!(
        command,
        Refresh::Command(TokenCommand {
            program: "print-token".to_owned(),
            arguments: vec!["--key".to_owned(), "k-123".to_owned()],
        })
    );
    assert!(!format!("{command:?}").contains("k-123"));
    assert_snapshot!(problems("
        [credential.a]
        refresh = { kind = 'command' }
        [credential.b]
        refresh = { kind = 'command', command = [] }
        [credential.c]
        refresh = { kind = 'client_credentials', client_id = 'app' }
    "), @r#"
    t.toml:3:9: `credential.a.refresh.command` is missing, expected a list, each a string such as `"text"`
    t.toml:5:49: `credential.b.refresh.command` is empty, expected a program and its arguments
    t.toml:7:9: `credential.c.refresh.token_url` is missing, expected a URL such as `"https://api.example.com/v1"`
    t.toml:7:9: `credential.c.refresh.client_secret` is missing, expected a reference such as `env:NAME` or `file:PATH`
    "#);
}

#[test]
fn refuses_a_command_that_is_not_in_the_file() {
    let text = "[credential.crm.refresh]\nkind = 'command'\ncommand = ['print-token']";
    let refused = "`credential.crm.refresh.command` is accepted in the configuration file only\n";
    for (path, value) in [("command", "rm,-rf,/"), ("kind", "command")] {
        let path = format!("credential.crm.refresh.{path}");
        let found = problems_with(text, &Made::default(), &[(&path, value)]);
        assert!(found.ends_with(refused), "{found}");
    }
}

#[test]
fn refuses_the_type_of_reports_and_secrets_that_cannot_be_decoded() {
    let made = Made::with(&[("HOOK", "whsec_?")]);
    assert_snapshot!(problems_with("
        [operation.webhook]
        retain = '1d'
        [operation.default]
        webhook = { url = 'https://hooks.example.com', secret = 'env:HOOK' }
    ", &made, &[]), @r#"
    t.toml:2:20: `operation.webhook` is the type of reports to webhooks, expected another name
    t.toml:5:65: `operation.default.webhook.secret`: begins with `whsec_`, expected base 64 behind it
    "#);
}

#[test]
fn refuses_endpoints_without_names_or_with_secrets() {
    assert_snapshot!(problems("
        [pool.'my pool']
        endpoints = [
          { url = 'https://user:SECRET@a.example.com' },
          { name = 'b/c', url = 'ftp://b.example.com' },
          { name = 'd', url = 'https://d.example.com', headers = { 'x y' = 'a', host = 'b', authorization = 'Bearer SECRET' }, weight = 3 },
        ]
        [[pool.ok.rule]]
        verdict = 'fine'
        [[pool.ok.rule]]
        status = [99, 'x']
        verdict = 'rejected'
    "), @r#"
    t.toml:2:15: `pool."my pool"`: wrong name, expected up to 64 letters, digits, `-`, `_` and `.`, beginning with a letter or digit
    t.toml:4:11: `pool."my pool".endpoints[0].name` is missing, expected a value
    t.toml:4:19: `pool."my pool".endpoints[0].url` is `https://…@a.example.com`, expected a URL without user info; credentials go into `headers`
    t.toml:5:20: `pool."my pool".endpoints[1].name` is `b/c`, expected a name of up to 64 characters without `/`
    t.toml:5:33: `pool."my pool".endpoints[1].url` is `ftp://b.example.com`, expected a URL that begins with `http://` or `https://`
    t.toml:6:76: `pool."my pool".endpoints[2].headers."x y"`: wrong name, expected the name of a header, such as `authorization`
    t.toml:6:88: `pool."my pool".endpoints[2].headers.host` is set for every request anyway, expected another header
    t.toml:6:109: `pool."my pool".endpoints[2].headers.authorization`: a secret must not be written out, expected `env:NAME` or `file:PATH`
    t.toml:6:128: `pool."my pool".endpoints[2].weight`: unknown setting, expected one of: name, url, ca, client_cert, client_key, http2, headers
    t.toml:8:9: `pool.ok.rule[0]` has no condition, expected `status`, `header`, `code` or `text`
    t.toml:8:16: `pool.ok.endpoints` is missing, expected at least one endpoint such as `{ name = "a", url = "https://a.example.com" }`
    t.toml:9:19: `pool.ok.rule[0].verdict` is `fine`, expected `success`, `throttled`, `overloaded`, `unreachable`, `quota_exhausted`, `unauthorized`, `conflict` or `rejected`
    t.toml:11:19: `pool.ok.rule[1].status[0]` is `99`, expected a whole number from 100 to 999
    t.toml:11:23: `pool.ok.rule[1].status[1]` is `x`, expected a whole number from 100 to 999, not a string
    "#);
}

#[test]
fn refuses_secrets_that_are_literal_missing_or_unusable() {
    let mut made = Made::with(&[
        ("EMPTY", " "),
        ("LINES", "a\nb"),
        ("SAME", "the same for both"),
        ("SHORT", "fifteen letters"),
    ]);
    made.files.insert("/binary".to_owned(), vec![0xff]);
    assert_snapshot!(problems_with("
        [client.literal]
        token = 'SECRET'
        [client.number]
        token = 12345
        [client.unset]
        token = 'env:UNSET'
        [client.empty]
        token = 'env:EMPTY'
        [client.lines]
        token = 'env:LINES'
        [client.gone]
        token = 'file:/gone'
        [client.binary]
        token = 'file:/binary'
        [client.none]
        [client.same1]
        token = 'env:SAME'
        [client.same2]
        token = 'env:SAME'
        [storage]
        operations = 'postgres://user:SECRET@db/x'
        gates = 'memcached://x'
        [client.short]
        token = 'env:SHORT'
    ", &made, &[]), @r#"
    t.toml:3:17: `client.literal.token`: a secret must not be written out, expected `env:NAME` or `file:PATH`
    t.toml:5:17: `client.number.token` is a whole number, expected a string such as `"env:NAME"` or `"file:PATH"`
    t.toml:7:17: `client.unset.token`: the environment variable `UNSET` is not set
    t.toml:9:17: `client.empty.token`: the environment variable `EMPTY` is empty, expected a value
    t.toml:11:17: `client.lines.token`: the environment variable `LINES` has control characters, expected one line of text
    t.toml:13:17: `client.gone.token`: the file `/gone` cannot be read: entity not found
    t.toml:15:17: `client.binary.token`: the file `/binary` is not UTF-8
    t.toml:16:17: `client.none.token` is missing, expected a value
    t.toml:20:17: `client.same2.token` is the token of `client.same1` too, expected one of its own
    t.toml:22:22: `storage.operations`: a password must not be written out, expected `env:NAME` or `file:PATH`
    t.toml:23:17: `storage.gates`: expected an address that begins with `redis://` or `rediss://` or `unix://`
    t.toml:25:17: `client.short.token` is too short, expected at least 16 characters
    "#);
}

#[test]
fn allows_references_of_the_file_and_of_server_secrets() {
    let settings = load(
        "[server]\nsecrets = [\"env:LLM_*\"]\norigins = [\"https://App.example.com:443\"]\n\
         [pool.a]\nendpoints = [{ name = \"a\", url = \"https://a\", headers = { authorization = \"Bearer env:KEY_A\" } }]",
    );
    assert_eq!(settings.server.origins, ["https://app.example.com"]);
    assert!(settings.allows_reference("env:KEY_A"));
    assert!(settings.allows_reference("Bearer env:LLM_KEY"));
    assert!(!settings.allows_reference("env:KEY_B"));
    assert!(!settings.allows_reference("file:/etc/passwd"));
}

#[test]
fn refuses_to_serve_the_network_without_clients() {
    assert_snapshot!(problems("[server]\nlisten = '0.0.0.0:7070'"), @"t.toml:2:10: `server.listen` is `0.0.0.0:7070`, expected a loopback address, or a section `[client.NAME]` with a token: any other address is open to other machines");
    load("[server]\nlisten = '0.0.0.0:7070'\n[client.a]\ntoken = 'env:KEY_A'");
    load("[server]\nlisten = '[::1]:0'\nadmin = '[::1]:0'");
}

#[test]
fn flags_override_the_environment_which_overrides_the_file() {
    let text = "
        [gate]
        max_rate = 1
        max_wait = '1s'
        max_hold = '1m'
        [gate.'api.example.com']
        max_rate = 2
    ";
    let made = Made::with(&[
        ("TIDEGATE_GATE__MAX_WAIT", "2s"),
        ("TIDEGATE_GATE__MAX_HOLD", "2m"),
        ("TIDEGATE_GATE__API_EXAMPLE_COM__MAX_RATE", "3"),
        ("TIDEGATE_GATE__LIMITS", "10/1s, 5000/1d"),
        ("TIDEGATE_BACKOFF__SLOW__BASE", "9s"),
        ("TIDEGATE_CLIENT__APP__TOKEN", "a literal of an app"),
        ("TIDEGATE_CLIENT__OTHER__TOKEN", "env:TIDEGATE_OTHER"),
        ("TIDEGATE_OTHER", "known by reference"),
        ("TIDEGATE_CONFIG", "elsewhere.toml"),
        ("TIDEGATE_PORT_7070_TCP", "tcp://10.0.0.1:7070"),
        ("TIDEGATE_SERVICE_HOST", "10.0.0.1"),
        ("HOME", "/root"),
    ]);
    let flags = [
        ("gate.max_hold", "3m"),
        ("gate.\"api.example.com\".max_in_flight", "7"),
    ];
    let settings = load_from(text, &made, &flags).unwrap();
    let gate = settings.gate_for("other.example.com");
    assert_eq!(gate.rate_bounds().1.to_string(), "1");
    assert_eq!(gate.max_wait(), Duration::from_secs(2));
    assert_eq!(gate.max_hold(), Duration::from_secs(180));
    assert_eq!(gate.known_limits().len(), 2);
    let host = settings.gate_for("api.example.com");
    assert_eq!(host.rate_bounds().1.to_string(), "3");
    assert_eq!(host.max_in_flight(), 7);
    assert_eq!(host.max_wait(), Duration::from_secs(2));
    assert_eq!(settings.backoffs["slow"].base(), Duration::from_secs(9));
    assert_eq!(
        settings.clients["app"].token.expose(),
        "a literal of an app"
    );
    assert_eq!(
        settings.clients["other"].token.expose(),
        "known by reference"
    );
}

#[test]
fn reports_wrong_variables_and_flags_by_name() {
    let made = Made::with(&[
        ("TIDEGATE_GATE__MAX_RAT", "1"),
        ("TIDEGATE_GATE_MAX_RATE", "1"),
        ("TIDEGATE_GATE__MAX_WAIT", "30"),
        ("TIDEGATE_GATE__API_EXAMPLE_COM__MAX_RATE", "1"),
        ("TIDEGATE_SOMETHING", "1"),
        ("TIDEGATE_GATE", "1"),
        ("TIDEGATE_KEY", "fine, for the file refers to it"),
    ]);
    let flags = [
        ("gate.max_rat", "1"),
        ("gate..max_rate", "1"),
        ("server.listen", "x"),
        ("client.a.token", "SECRET"),
    ];
    let text = "[client.b]\ntoken = 'env:TIDEGATE_KEY'";
    assert_snapshot!(problems_with(text, &made, &flags), @"
    TIDEGATE_GATE: not a setting, expected a name such as `TIDEGATE_GATE__MAX_RATE`
    TIDEGATE_GATE_MAX_RATE: not a setting; did you mean `TIDEGATE_GATE__MAX_RATE`?
    TIDEGATE_GATE__API_EXAMPLE_COM__MAX_RATE: names no host of the file; add its section there first
    TIDEGATE_GATE__MAX_RAT: not a setting; did you mean `TIDEGATE_GATE__MAX_RATE`?
    TIDEGATE_GATE__MAX_WAIT: `gate.max_wait` is `30`, expected a number with a unit such as `500ms`, `30s` or `5m`
    TIDEGATE_SOMETHING: not a setting, expected a name such as `TIDEGATE_GATE__MAX_RATE`
    --set client.a.token: `client.a.token`: a secret must not be written out, expected `env:NAME` or `file:PATH`
    --set gate..max_rate: expected a setting such as `gate.max_rate`
    --set gate.max_rat: `gate.max_rat`: unknown setting; did you mean `max_rate`?
    --set server.listen: `server.listen` is `x`, expected an IP address and a port such as `127.0.0.1:7070` or `[::1]:7070`
    ");
}

#[test]
fn finds_the_gate_by_host_longest_pattern_or_default() {
    let settings = load(
        "
        [gate]
        max_rate = 1
        [gate.'API.example.com']
        max_rate = 2
        [gate.'*.example.com']
        max_rate = 3
        [gate.'*.eu.example.com']
        max_rate = 4
        [gate.'[::1]']
        max_rate = 5
    ",
    );
    let check = |host: &str, rate: &str| {
        let max_rate = settings.gate_for(host).rate_bounds().1;
        assert_eq!(max_rate.to_string(), rate, "{host}");
    };
    check("api.example.com", "2");
    check("api.example.com:8443", "2");
    check("www.example.com", "3");
    check("a.eu.example.com", "4");
    check("eu.example.com", "3");
    check("example.com", "1");
    check("badexample.com", "1");
    check("[::1]", "5");
    check("[::1]:80", "5");
}

#[test]
fn refuses_names_that_are_no_hosts() {
    assert_snapshot!(problems("
        [gate.'a.example.com:8080']
        [gate.'https://a.example.com']
        [gate.'a b']
        [gate.'*']
        [gate.'b.example.com']
        share = true
        [pool.'a/b']
        endpoints = [{ name = 'a', url = 'https://a.example.com' }]
    "), @r#"
    t.toml:2:15: `gate."a.example.com:8080"`: wrong name, expected a host without scheme and port, such as `api.example.com` or `*.example.com`
    t.toml:3:15: `gate."https://a.example.com"`: wrong name, expected a host without scheme and port, such as `api.example.com` or `*.example.com`
    t.toml:4:15: `gate."a b"`: wrong name, expected no white space or control characters
    t.toml:5:15: `gate."*"`: wrong name, expected a name of letters, digits, `-` and `_` with dots between
    t.toml:7:17: `gate."b.example.com".share` is `true`, expected `false`: one host has one gate anyway; patterns such as `*.example.com` can share
    t.toml:8:15: `pool."a/b"`: wrong name, expected up to 64 letters, digits, `-`, `_` and `.`, beginning with a letter or digit
    "#);
}

#[test]
fn reports_syntax_errors_with_line_and_column() {
    assert_snapshot!(problems("[gate]\nmax_rate = 5/s\nmax_wait = \"30s\n"), @r#"
    t.toml:2:12: not TOML: string values must be quoted, expected literal string
    t.toml:3:16: not TOML: invalid basic string, expected `"`
    "#);
    assert_snapshot!(problems("\u{feff}[gate]\nmax_rat = 5"), @"t.toml:2:1: `gate.max_rat`: unknown setting; did you mean `max_rate`?");
}

#[test]
fn refuses_hostile_nesting() {
    for (open, close) in [("[", "]"), ("{a=", "}"), ("a.", "")] {
        let text = format!("x = {}1{}", open.repeat(100_000), close.repeat(100_000));
        assert!(!problems(&text).is_empty(), "{open}");
    }
    let key = format!("{}a = 1", "a.".repeat(1_000_000));
    assert!(!problems(&key).is_empty());
    let header = format!("[{}a]", "a.".repeat(1_000_000));
    assert!(!problems(&header).is_empty());
    let inside = format!("x = {{ {}a = 1 }}", "a.".repeat(1_000_000));
    assert!(!problems(&inside).is_empty());
}

/// Pieces of settings files, right and wrong.
fn pieces() -> impl Strategy<Value = String> {
    let mut pieces: Vec<String> = default_file()
        .lines()
        .map(|line| line.trim_start_matches('#').to_owned())
        .collect();
    let wrong = [
        "[",
        "]",
        "= 0",
        "= -1",
        "x = 1",
        "[gate.'*']",
        "max_wait = 5",
        "[[pool]]",
        "[pool.llm.protection.x]",
        "gate = 1",
        "\"",
        "'''",
        "é = { a = [1,",
        "rule = [{}]",
        "[[gate.a.rule]]",
        "inf = nan",
    ];
    pieces.extend(wrong.map(str::to_owned));
    let piece = prop::sample::select(pieces);
    prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.join("\n"))
}

fn check_that_problems_are_inside(bytes: &[u8]) -> Result<(), TestCaseError> {
    let sources = Sources {
        file: Some(("t.toml".to_owned(), bytes.to_vec())),
        flags: Vec::new(),
    };
    let Err(problems) = Settings::load(&sources, &Made::complete()) else {
        return Ok(());
    };
    prop_assert!(!problems.is_empty());
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    for problem in problems {
        let Location::File { line, column, .. } = problem.location else {
            return Err(TestCaseError::fail(format!("no place: {problem}")));
        };
        prop_assert!(line >= 1 && line <= lines.len(), "{}", problem);
        let length = String::from_utf8_lossy(lines[line - 1]).chars().count();
        prop_assert!(column >= 1 && column <= length + 1, "{}", problem);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn locates_problems_of_any_bytes_inside_them(bytes: Vec<u8>) {
        check_that_problems_are_inside(&bytes)?;
    }

    #[test]
    fn locates_problems_of_any_text_inside_it(text: String) {
        check_that_problems_are_inside(text.as_bytes())?;
    }

    #[test]
    fn locates_problems_of_mixed_lines_inside_them(text in pieces()) {
        check_that_problems_are_inside(text.as_bytes())?;
    }
}

#[test]
fn refuses_names_and_times_of_a_fleet_that_cannot_work() {
    let problems = |text: &str| problems_with(&format!("[storage]\n{text}"), &Made::with(&[]), &[]);
    for (text, expected) in [
        ("namespace = 'a:b'", "1 to 64 letters, digits"),
        ("gates_interval = '10ms'", "20ms"),
        ("gates_interval = '2s'", "at most 1s"),
        ("gates_lease = '100ms'", "500ms"),
        (
            "gates_interval = '1s'\ngates_lease = '4s'",
            "at least 5 intervals",
        ),
        ("gates_interval = '500ms'", "at least 5 intervals"),
    ] {
        let problems = problems(text);
        assert!(problems.contains(expected), "{text}: {problems}");
        assert_eq!(problems.lines().count(), 1, "{problems}");
    }
}

#[test]
fn refuses_a_storage_key_that_is_no_key() {
    let made = Made::with(&[("SHORT", "0f0f"), ("WHOLE", &"0f".repeat(32))]);
    assert_snapshot!(problems_with("[storage]\nkey = 'env:SHORT'", &made, &[]), @"t.toml:2:7: `storage.key`: key 1 of 1 has 4 characters, expected 32 bytes in hex (64 digits) or base64 (44 characters); make one with `openssl rand -hex 32`");
    let settings = load_from("[storage]\nkey = 'env:WHOLE'", &made, &[]).unwrap();
    assert!(settings.storage.key.is_some());
}

#[test]
fn reports_to_webhooks_have_a_backoff_of_their_own() {
    let webhook = |file: &str| {
        let settings = load(file);
        let name = &settings.operation(WEBHOOK_OPERATION).backoff;
        let backoff = &settings.backoffs[name];
        (backoff.base().as_secs(), backoff.max_attempts())
    };
    assert_eq!(webhook(""), (5, 20));
    assert_eq!(webhook("[backoff.webhook]\nmax_attempts = 3\n"), (5, 3));
    assert_eq!(webhook("[backoff.standard]\nmax_attempts = 3\n"), (5, 20));
}
