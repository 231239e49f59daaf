//! git over HTTP and SSH: clone, fetch, ls-remote. Nearly every failure exits with 128, so texts
//! decide.
//!
//! Samples are output of git 2.47.3 against local servers, with `GIT_TERMINAL_PROMPT=0`. Without that
//! variable git waits for a password; translations of git's messages match no rule (`LC_ALL=C`).

use super::{BuiltIn, CURL_SERVER_ERRORS};
use crate::rules::Class::{Retryable, Terminal};

pub(super) const RULES: &[BuiltIn] = &[
    BuiltIn {
        name: "dns",
        class: Retryable,
        any: &["could not resolve host", "could not resolve hostname"],
        reason: "the name was not found; name servers fail now and then",
        sample: "Cloning into 'clone'...\nfatal: unable to access \
                 'http://nonexistent.invalid/x/': Could not resolve host: nonexistent.invalid",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "rate_limited",
        class: Retryable,
        any: &["returned error: 429", "HTTP 429", "rate limit exceeded"],
        reason: "the site limits the number of requests; this passes",
        sample: "Cloning into 'clone'...\nerror: RPC failed; HTTP 429 curl 22 The requested \
                 URL returned error: 429\nfatal: expected flush after ref listing",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "server_error",
        class: Retryable,
        any: CURL_SERVER_ERRORS,
        reason: "the server fails or is overloaded; this passes",
        sample: "Cloning into 'clone'...\nfatal: unable to access \
                 'http://127.0.0.1:36147/503/': The requested URL returned error: 503",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "login_required",
        class: Terminal,
        any: &[
            "could not read username",
            "could not read password",
            "authentication failed",
            "permission denied (publickey)",
        ],
        reason: "the server asks for a login that git does not have",
        sample: "Cloning into 'clone'...\nfatal: could not read Username for \
                 'http://127.0.0.1:36147': terminal prompts disabled",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "forbidden",
        class: Retryable,
        any: &["returned error: 403"],
        reason: "sites answer 403 to clients that send too fast, too; it may pass",
        sample: "Cloning into 'clone'...\nfatal: unable to access \
                 'http://127.0.0.1:36147/403/': The requested URL returned error: 403",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "gone",
        class: Terminal,
        any: &["returned error: 410"],
        reason: "the server has no such repository",
        sample: "Cloning into 'clone'...\nfatal: unable to access \
                 'http://127.0.0.1:36147/410/': The requested URL returned error: 410",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "not_found",
        class: Terminal,
        all: &["fatal: repository", "not found"],
        reason: "the server has no such repository",
        sample: "Cloning into 'clone'...\nfatal: repository 'http://127.0.0.1:36147/404/' \
                 not found",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "no_repository",
        class: Terminal,
        any: &[
            "does not appear to be a git repository",
            "repository not found",
        ],
        reason: "there is no repository at this address",
        sample: "Cloning into 'clone'...\nfatal: '/tmp/nope.git' does not appear to be a git \
                 repository\nfatal: Could not read from remote repository.\n\nPlease make \
                 sure you have the correct access rights\nand the repository exists.",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "no_local_repository",
        class: Terminal,
        all: &["fatal: repository", "does not exist"],
        reason: "there is no repository at this path",
        sample: "fatal: repository '/nonexistent/repo' does not exist",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "no_branch",
        class: Terminal,
        any: &["not found in upstream"],
        reason: "the repository has no such branch or tag",
        sample: "Cloning into 'clone'...\nfatal: Remote branch nope not found in upstream \
                 origin",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "destination_exists",
        class: Terminal,
        any: &["already exists and is not an empty directory"],
        reason: "the folder to clone into exists and is not empty",
        sample: "fatal: destination path 'ex' already exists and is not an empty directory.",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "certificate",
        class: Terminal,
        any: &["certificate verification failed", "ssl certificate problem"],
        reason: "the certificate of the server is not trusted; only a person can change that",
        sample: "Cloning into 'clone'...\nfatal: unable to access \
                 'https://127.0.0.1:46137/x/': server certificate verification failed. \
                 CAfile: /etc/ssl/certs/ca-certificates.crt CRLfile: none",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "malformed_url",
        class: Terminal,
        any: &["url using bad/illegal format", "url rejected"],
        reason: "git cannot read this URL",
        sample: "Cloning into 'clone'...\nfatal: unable to access 'http://[::1/': URL using \
                 bad/illegal format or missing URL",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "redirects",
        class: Terminal,
        any: &["redirects followed"],
        reason: "the site redirects in a circle",
        sample: "Cloning into 'clone'...\nfatal: unable to access \
                 'http://127.0.0.1:36147/loop/': Maximum (20) redirects followed",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "interrupted",
        class: Retryable,
        any: &[
            "early EOF",
            "RPC failed",
            "unexpected disconnect",
            "hung up unexpectedly",
            "connection reset by peer",
            "empty reply from server",
            "transfer closed",
        ],
        reason: "the connection ended in the middle of the transfer",
        sample: "Cloning into 'clone'...\nerror: RPC failed; curl 18 transfer closed with \
                 197362 bytes remaining to read\nerror: 5209 bytes of body are still \
                 expected\nfetch-pack: unexpected disconnect while reading sideband \
                 packet\nfatal: early EOF\nfatal: fetch-pack: invalid index-pack output",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "connect",
        class: Retryable,
        any: &[
            "failed to connect to",
            "connection refused",
            "connection timed out",
        ],
        reason: "nothing listens at the address at the moment",
        sample: "Cloning into 'clone'...\nfatal: unable to access 'http://127.0.0.1:1/x/': \
                 Failed to connect to 127.0.0.1 port 1 after 0 ms: Couldn't connect to server",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "timeout",
        class: Retryable,
        any: &["operation too slow", "operation timed out"],
        reason: "the server took too long; this passes",
        sample: "Cloning into 'clone'...\nfatal: unable to access \
                 'http://127.0.0.1:36147/slow/': Operation too slow. Less than 1 bytes/sec \
                 transferred the last 2 seconds",
        ..BuiltIn::EMPTY
    },
];
