//! Worst cases and warnings, from written settings.

use insta::assert_snapshot;

use super::*;
use crate::settings::tests::load;

fn warnings(text: &str) -> String {
    let warnings = check(&load(text)).warnings;
    let lines = warnings
        .iter()
        .map(|warning| format!("{}: {}\n", warning.key, warning.what));
    lines.collect()
}

fn route(text: &str, name: &str) -> Route {
    let report = check(&load(text));
    let mut routes = report.routes.into_iter().filter(|route| route.name == name);
    routes.next().unwrap()
}

#[test]
fn reports_the_worst_case_of_the_defaults() {
    let report = check(&Settings::default());
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
    let operation = route("", "default");
    assert_eq!((operation.attempts, operation.sends), (5, 5));
    let waits = (operation.waits.0.as_millis(), operation.waits.1.as_millis());
    assert_eq!(waits, (7500, 22_500));
    assert_eq!(
        operation.bound,
        Bound::ExpiresAfter(Duration::from_secs(86_400))
    );
    assert_eq!(
        operation.amplification,
        Amplification {
            sustained: 1.2,
            peak: 5,
            peak_below: 2.5
        }
    );
}

#[test]
fn the_default_file_has_no_warnings() {
    assert_eq!(warnings(&crate::settings::default_file()), "");
}

#[test]
fn doubles_sends_with_a_credential() {
    let text = "
        [operation.default]
        credential = 'crm'
        [credential.crm.refresh]
        kind = 'oauth2_refresh'
        token_url = 'https://login.example.com'
        client_id = 'me'
        client_secret = 'env:S'
        refresh_token = 'env:R'
    ";
    assert_eq!(
        (
            route(text, "default").attempts,
            route(text, "default").sends
        ),
        (5, 10)
    );
}

#[test]
fn counts_attempts_over_all_endpoints() {
    let text = "
        [pool.llm]
        backoff = 'background'
        [[pool.llm.endpoints]]
        name = 'a'
        url = 'https://a.example.com'
        [[pool.llm.endpoints]]
        name = 'b'
        url = 'https://b.example.com'
    ";
    let pool = route(text, "llm");
    assert_eq!((pool.endpoints, pool.attempts, pool.sends), (2, 7, 7));
    assert_eq!(pool.bound, Bound::MaxWait(Duration::from_secs(30)));
    assert_snapshot!(warnings(text), @"pool.llm.backoff: allows 7 attempts, but the 6th comes after `max_wait` (30s) at the earliest");
}

#[test]
fn amplifies_nothing_without_a_budget() {
    let text = "[retry_budget]\nratio = 0\nmin_per_second = 0";
    let none = route(text, "default").amplification;
    assert_eq!((none.sustained, none.peak, none.peak_below), (1.0, 1, 0.0));
    assert_snapshot!(warnings(text), @"retry_budget: allows no retry at all: every request is sent once");
}

#[test]
fn warns_about_gate_settings_without_effect() {
    assert_snapshot!(warnings("
        [gate]
        max_rate = 0.5
        max_wait = '1s'
        burst = 9
        throttled_after = '2s'
        limits = ['10/1s', '1000/1m', '3/1m']
        [gate.'a.example.com']
        enabled = false
        [gate.'b.example.com']
        shards = 8
    "), @r#"
    gate: `burst`, `increase`, `decrease`, `latency_target`, `latency_degrade_factor` and `count_throttled` have no effect without `strategy = "aimd"`
    gate.min_samples: is never reached: at most 3 outcomes fit into `window` (10s); only `consecutive_failures` opens the breaker
    gate.max_wait: is below the wait for one token at `initial_rate` (2.0s): every caller but the first is refused
    gate.max_wait: is below the time between two requests of the limit `3/1m` (20s): most waiting callers are refused
    gate.throttled_after: is never exceeded: no caller waits longer than `max_wait` (1s)
    gate.limits: `10/1s` is never reached: `3/1m` is tighter
    gate.limits: `1000/1m` is never reached: `10/1s` is tighter
    gate."a.example.com".enabled: is off: no pace, no breaker, nothing is learned
    gate."b.example.com".shards: has no effect for one host; set it in `[gate]` (shards counts all gates)
    "#);
}

#[test]
fn warns_about_rules_that_never_match() {
    assert_snapshot!(warnings("
        [[gate.'a.example.com'.rule]]
        status = [404, 410]
        verdict = 'overloaded'
        [[gate.'a.example.com'.rule]]
        status = [404]
        text = 'gone'
        verdict = 'rejected'
        [[gate.'a.example.com'.rule]]
        text = 'gone'
        verdict = 'rejected'
        [[gate.'a.example.com'.rule]]
        text = 'GONE'
        header = { name = 'server' }
        verdict = 'rejected'
    "), @r#"
    gate."a.example.com".rule[1]: never matches: `rule[0]` matches the same responses and comes first
    gate."a.example.com".rule[3]: never matches: `rule[2]` matches the same responses and comes first
    "#);
}

#[test]
fn warns_about_dangerous_settings() {
    assert_snapshot!(warnings("
        [network]
        allow = ['0.0.0.0/0', '10.0.0.0/8']
        [pool.llm]
        endpoints = [
          { name = 'a', url = 'http://a.example.com', headers = { authorization = 'env:KEY_A' } },
          { name = 'b', url = 'http://127.0.0.1:8080', headers = { authorization = 'env:KEY_A' } },
          { name = 'c', url = 'http://c.example.com' },
        ]
        [credential.crm.refresh]
        kind = 'oauth2_refresh'
        token_url = 'http://login.example.com'
        client_id = 'me'
        client_secret = 'env:S'
        refresh_token = 'env:R'
    "), @"
    pool.llm.endpoints.a: sends its headers unencrypted; use `https`
    credential.crm.refresh.token_url: gets its secrets unencrypted; use `https`
    network.allow: `0.0.0.0/0` is every address: redirects can reach your own machines
    ");
}

#[test]
fn warns_about_denied_hosts_while_none_is_allowed() {
    assert_eq!(
        warnings("[forward]\ndeny = ['.example.com']"),
        "forward.deny: has no effect: forward mode is off while `forward.allow` is empty\n"
    );
    let allowed = "[forward]\nallow = ['*.example.com']\ndeny = ['.a.example.com']";
    assert_eq!(warnings(allowed), "");
}

#[test]
fn warns_about_pool_settings_without_effect() {
    assert_snapshot!(warnings("
        [backoff.mine]
        base = '1m'
        [backoff.other]
        base = '2s'
        [pool.one]
        backoff = 'mine'
        retry_unsafe = true
        endpoints = [{ name = 'a', url = 'https://a.example.com' }]
        [pool.one.protection]
        disable_after = 2
        [pool.two]
        endpoints = [{ name = 'a', url = 'https://a.example.com' }]
        protection = { enabled = true, disable_after = 2, statuses = [], texts = [] }
        [operation.quick]
        expires_after = '2s'
        [credential.fixed]
        header = 'x-key'
    "), @"
    pool.one.protection: is off: a single endpoint is left to its gate, because no other could do its work
    pool.one.protection: has settings that have no effect while it is off
    pool.one.backoff: allows 5 attempts, but the 3rd comes after `max_wait` (30s) at the earliest
    pool.one.retry_unsafe: sends POST and PATCH again even if the server has acted: they may happen twice
    pool.two.protection: never pauses or disables an endpoint: no status, text or failure counts
    pool.two.protection.pauses: from the 3rd on are never reached: `disable_after` is 2
    operation.quick.backoff: allows 5 attempts, but the 4th comes after `expires_after` (2s) at the earliest
    backoff.other: is used by no pool and no type of operation
    credential.fixed: has no `refresh`: a 401 ends the request
    ");
}
