//! GNU Wget with messages (not `--quiet`): statuses are in its output, not in the exit code.
//!
//! Samples are output of Wget 1.21.3 with `--no-verbose` against local servers; the bot-check page
//! resembles Cloudflare's.

use super::{BOT_CHECK_PAGE, BuiltIn};
use crate::rules::Class::{BotCheck, Retryable, Terminal};

pub(super) const RULES: &[BuiltIn] = &[
    BuiltIn {
        name: "not_found",
        class: Terminal,
        any: &["ERROR 404", "ERROR 410"],
        exits: &[8],
        reason: "the site has no such page",
        sample: "http://127.0.0.1:36147/404:\n2026-11-16 02:19:18 ERROR 404: Not Found.",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "rejected",
        class: Terminal,
        any: &[
            "ERROR 400",
            "ERROR 402",
            "ERROR 405",
            "ERROR 406",
            "ERROR 411",
            "ERROR 413",
            "ERROR 414",
            "ERROR 415",
            "ERROR 416",
            "ERROR 422",
            "ERROR 431",
            "ERROR 451",
        ],
        exits: &[8],
        reason: "the server rejects the request itself; sending it again changes nothing",
        sample: "http://127.0.0.1:36147/400:\n2026-11-16 02:19:18 ERROR 400: Bad Request.",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "bot_check",
        class: BotCheck,
        any: BOT_CHECK_PAGE,
        exits: &[8],
        reason: "the site suspects a bot; slower requests or cookies of a browser help",
        sample: "<html><head><title>Just a moment...</title></head><body>Enable JavaScript \
                 and cookies to continue</body></html>http://127.0.0.1:36147/cf:\n2026-11-16 \
                 02:22:51 ERROR 403: Forbidden.",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "rate_limited",
        class: Retryable,
        any: &["ERROR 429"],
        exits: &[8],
        reason: "the site limits the number of requests; this passes",
        sample: "http://127.0.0.1:36147/429:\n2026-11-16 02:19:18 ERROR 429: Too Many \
                 Requests.",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "forbidden",
        class: Retryable,
        any: &["ERROR 403"],
        exits: &[8],
        reason: "sites answer 403 to clients that send too fast, too; it may pass",
        sample: "http://127.0.0.1:36147/403:\n2026-11-16 02:19:18 ERROR 403: Forbidden.",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "server_error",
        class: Retryable,
        any: &[
            "ERROR 408",
            "ERROR 500",
            "ERROR 502",
            "ERROR 503",
            "ERROR 504",
            "ERROR 520",
            "ERROR 521",
            "ERROR 522",
            "ERROR 523",
            "ERROR 524",
            "ERROR 529",
        ],
        exits: &[8],
        reason: "the server fails or is overloaded; this passes",
        sample: "http://127.0.0.1:36147/503:\n2026-11-16 02:19:18 ERROR 503: Service \
                 Unavailable.",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "redirects",
        class: Terminal,
        any: &["redirections exceeded"],
        exits: &[8],
        reason: "the site redirects in a circle",
        sample: "20 redirections exceeded.",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "login_required",
        class: Terminal,
        exits: &[6],
        reason: "the site asks for a login",
        sample: "Username/Password Authentication Failed.",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "network",
        class: Retryable,
        exits: &[4],
        reason: "the network failed; this passes",
        sample: "failed: Connection refused.",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "certificate",
        class: Terminal,
        exits: &[5],
        reason: "the certificate of the server is not trusted; only a person can change that",
        sample: "ERROR: The certificate of ‘127.0.0.1’ is not trusted.\nERROR: The \
                 certificate of ‘127.0.0.1’ doesn't have a known issuer.",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "malformed_url",
        class: Terminal,
        any: &["invalid host name", "unsupported scheme", "bad port number"],
        exits: &[1],
        reason: "Wget cannot read this URL",
        sample: "http://: Invalid host name.",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "usage",
        class: Terminal,
        exits: &[2],
        reason: "Wget does not know one of its options",
        sample: "Usage: wget [OPTION]... [URL]...\n\nTry `wget --help' for more options.",
        ..BuiltIn::EMPTY
    },
];
