//! rclone, by its documented exit codes from 3 on; 1 and 2 were swapped in 1.69, so texts decide.
//!
//! Samples are output of rclone 1.60.1 against local servers and folders; that of `rate_limited` is
//! from a user's bug report.

use super::BuiltIn;
use crate::rules::Class::{Retryable, Success, Terminal};

pub(super) const RULES: &[BuiltIn] = &[
    BuiltIn {
        name: "rate_limited",
        class: Retryable,
        any: &[
            "rateLimitExceeded",
            "userRateLimitExceeded",
            "429 too many requests",
            "too_many_requests",
            "SlowDown",
        ],
        exits: &[1, 2, 5],
        reason: "the site limits the number of requests; this passes",
        sample: "ERROR : <Directory>/<Filename>: Failed to copy: googleapi: Error 403: User \
                 rate limit exceeded, userRateLimitExceeded",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "not_found",
        class: Terminal,
        any: &["404 not found", "410 gone"],
        exits: &[1, 2],
        reason: "there is no such file",
        sample: "2026/11/16 02:20:10 ERROR : Attempt 1/1 failed with 1 errors and: CopyURL \
                 failed: 404 Not Found\n2026/11/16 02:20:10 Failed to copyurl: CopyURL \
                 failed: 404 Not Found",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "login_required",
        class: Terminal,
        any: &["401 unauthorized"],
        exits: &[1, 2],
        reason: "the storage does not accept the login",
        sample: "2026/11/16 02:20:10 ERROR : Attempt 1/1 failed with 1 errors and: CopyURL \
                 failed: 401 Unauthorized\n2026/11/16 02:20:10 Failed to copyurl: CopyURL \
                 failed: 401 Unauthorized",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "forbidden",
        class: Retryable,
        any: &["403 forbidden"],
        exits: &[1, 2],
        reason: "sites answer 403 to clients that send too fast, too; it may pass",
        sample: "2026/11/16 02:20:10 ERROR : Attempt 1/1 failed with 1 errors and: CopyURL \
                 failed: 403 Forbidden\n2026/11/16 02:20:10 Failed to copyurl: CopyURL \
                 failed: 403 Forbidden",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "server_error",
        class: Retryable,
        any: &[
            "500 internal server error",
            "502 bad gateway",
            "503 service unavailable",
            "504 gateway timeout",
        ],
        exits: &[1, 2],
        reason: "the server fails or is overloaded; this passes",
        sample: "2026/11/16 02:20:10 ERROR : Attempt 1/1 failed with 1 errors and: CopyURL \
                 failed: 503 Service Unavailable\n2026/11/16 02:20:10 Failed to copyurl: \
                 CopyURL failed: 503 Service Unavailable",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "dns",
        class: Retryable,
        any: &["no such host"],
        exits: &[1, 2],
        reason: "the name was not found; name servers fail now and then",
        sample: "2026/11/16 02:20:11 Failed to copyurl: Get \"http://nonexistent.invalid/\": \
                 dial tcp: lookup nonexistent.invalid on 10.255.255.53:53: no such host",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "certificate",
        class: Terminal,
        any: &["x509"],
        exits: &[1, 2],
        reason: "the certificate of the server is not trusted; only a person can change that",
        sample: "2026/11/16 02:20:13 Failed to copyurl: Get \"https://127.0.0.1:46137/\": \
                 x509: cannot validate certificate for 127.0.0.1 because it doesn't contain \
                 any IP SANs",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "no_remote",
        class: Terminal,
        any: &["didn't find section in config file"],
        exits: &[1, 2],
        reason: "the configuration of rclone has no such remote",
        sample: "2026/11/16 02:20:11 Failed to create file system for \"nope:\": didn't find \
                 section in config file",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "usage",
        class: Terminal,
        any: &["unknown command", "unknown flag", "unknown shorthand flag"],
        exits: &[1, 2],
        reason: "rclone does not know one of its commands or options",
        sample: "2026/11/16 02:20:11 Fatal error: unknown command \"bogus\" for \"rclone\"",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "source_not_found",
        class: Terminal,
        exits: &[3, 4],
        reason: "there is no such folder or file",
        sample: "2026/11/16 02:20:11 ERROR : Attempt 1/1 failed with 1 errors and: directory \
                 not found\n2026/11/16 02:20:11 Failed to copy: directory not found",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "temporary",
        class: Retryable,
        exits: &[5],
        reason: "rclone says that a retry may help",
        sample: "2026/11/16 02:20:11 Failed to copyurl: Get \"http://127.0.0.1:1/\": dial \
                 tcp 127.0.0.1:1: connect: connection refused",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "no_retry",
        class: Terminal,
        exits: &[6],
        reason: "rclone says that a retry does not help",
        sample: "2026/11/16 02:22:45 ERROR : Can't retry any of the errors - not attempting \
                 retries\n2026/11/16 02:22:45 Failed to copy: immutable file modified",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "fatal",
        class: Terminal,
        exits: &[7],
        reason: "rclone says that no retry helps",
        sample: "2026/11/16 02:22:46 ERROR : Fatal error received - not attempting \
                 retries\n2026/11/16 02:22:46 Failed to sync with 2 errors: last error was: \
                 failed to delete 1 files",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "limit_reached",
        class: Terminal,
        exits: &[8, 10],
        reason: "a limit that the command sets itself is reached",
        sample: "2026/11/16 02:20:13 Failed to copy: max transfer limit reached as set by \
                 --max-transfer",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "nothing_to_do",
        class: Success,
        exits: &[9],
        reason: "nothing had to be copied",
        sample: "",
        ..BuiltIn::EMPTY
    },
];
