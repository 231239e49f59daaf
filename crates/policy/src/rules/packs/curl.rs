//! curl with `--fail` or `--fail-with-body`; without them, curl exits with 0 whatever the status.
//!
//! Samples are output of curl 7.88.1 against local servers; the bot-check page resembles
//! Cloudflare's.

use super::{BOT_CHECK_PAGE, BuiltIn, CURL_SERVER_ERRORS};
use crate::rules::Class::{BotCheck, Retryable, Terminal};

pub(super) const RULES: &[BuiltIn] = &[
    BuiltIn {
        name: "not_found",
        class: Terminal,
        any: &["returned error: 404", "returned error: 410"],
        exits: &[22],
        reason: "the site has no such page",
        sample: "curl: (22) The requested URL returned error: 404",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "login_required",
        class: Terminal,
        any: &["returned error: 401", "returned error: 407"],
        exits: &[22],
        reason: "the site asks for a login",
        sample: "curl: (22) The requested URL returned error: 401",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "rejected",
        class: Terminal,
        any: &[
            "returned error: 400",
            "returned error: 402",
            "returned error: 405",
            "returned error: 406",
            "returned error: 411",
            "returned error: 413",
            "returned error: 414",
            "returned error: 415",
            "returned error: 416",
            "returned error: 422",
            "returned error: 431",
            "returned error: 451",
        ],
        exits: &[22],
        reason: "the server rejects the request itself; sending it again changes nothing",
        sample: "curl: (22) The requested URL returned error: 400",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "bot_check",
        class: BotCheck,
        any: BOT_CHECK_PAGE,
        exits: &[22],
        reason: "the site suspects a bot; slower requests or cookies of a browser help",
        sample: "curl: (22) The requested URL returned error: 403\n<html><head><title>Just a \
                 moment...</title></head><body>Enable JavaScript and cookies to \
                 continue</body></html>",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "rate_limited",
        class: Retryable,
        any: &["returned error: 429"],
        exits: &[22],
        reason: "the site limits the number of requests; this passes",
        sample: "curl: (22) The requested URL returned error: 429",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "forbidden",
        class: Retryable,
        any: &["returned error: 403"],
        exits: &[22],
        reason: "sites answer 403 to clients that send too fast, too; it may pass",
        sample: "curl: (22) The requested URL returned error: 403",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "server_error",
        class: Retryable,
        any: CURL_SERVER_ERRORS,
        exits: &[22],
        reason: "the server fails or is overloaded; this passes",
        sample: "curl: (22) The requested URL returned error: 503",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "malformed_url",
        class: Terminal,
        exits: &[3],
        reason: "curl cannot read this URL",
        sample: "curl: (3) URL using bad/illegal format or missing URL",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "unsupported_protocol",
        class: Terminal,
        exits: &[1],
        reason: "curl does not speak the protocol of this URL",
        sample: "curl: (1) Protocol \"foo\" not supported or disabled in libcurl",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "usage",
        class: Terminal,
        exits: &[2],
        reason: "curl does not know one of its options",
        sample: "curl: option --bogus: is unknown\ncurl: try 'curl --help' or 'curl \
                 --manual' for more information",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "dns",
        class: Retryable,
        exits: &[6, 5],
        reason: "the name was not found; name servers fail now and then",
        sample: "curl: (6) Could not resolve host: nonexistent.invalid",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "connect",
        class: Retryable,
        exits: &[7],
        reason: "nothing listens at the address at the moment",
        sample: "curl: (7) Failed to connect to 127.0.0.1 port 1 after 0 ms: Couldn't \
                 connect to server",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "timeout",
        class: Retryable,
        exits: &[28],
        reason: "the server took too long; this passes",
        sample: "curl: (28) Operation timed out after 1001 milliseconds with 0 bytes received",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "tls_handshake",
        class: Retryable,
        exits: &[35],
        reason: "the handshake of TLS failed; overloaded servers break it off",
        sample: "curl: (35) OpenSSL/3.0.19: error:0A00010B:SSL routines::wrong version number",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "interrupted",
        class: Retryable,
        exits: &[56, 16, 18, 52, 55, 92, 95, 96],
        reason: "the connection ended in the middle of the transfer",
        sample: "curl: (56) Recv failure: Connection reset by peer",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "certificate",
        class: Terminal,
        exits: &[60, 51, 58, 77, 90],
        reason: "the certificate of the server is not trusted; only a person can change that",
        sample: "curl: (60) SSL certificate problem: self-signed certificate\nMore details \
                 here: https://curl.se/docs/sslcerts.html",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "redirects",
        class: Terminal,
        exits: &[47],
        reason: "the site redirects in a circle",
        sample: "curl: (47) Maximum (50) redirects followed",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "too_large",
        class: Terminal,
        exits: &[63],
        reason: "the file is larger than `--max-filesize` allows",
        sample: "curl: (63) Maximum file size exceeded",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "no_file",
        class: Terminal,
        exits: &[37],
        reason: "the file of a `file:` URL does not exist",
        sample: "curl: (37) Couldn't open file /nonexistent",
        ..BuiltIn::EMPTY
    },
];
