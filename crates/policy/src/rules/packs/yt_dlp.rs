//! yt-dlp, and youtube-dl, whose messages it has kept.
//!
//! Samples are messages of yt-dlp 2026.10.26 on a machine of ours or, where only YouTube can cause
//! them, messages in bug reports of yt-dlp's users.

use super::BuiltIn;
use crate::rules::Class::{BotCheck, Retryable, Terminal};

pub(super) const RULES: &[BuiltIn] = &[
    BuiltIn {
        name: "session_rate_limited",
        class: Retryable,
        any: &["rate limited by YouTube"],
        reason: "the site limits the number of requests; this passes",
        sample: "ERROR: [youtube] 8NxoMpXM2oI: Video unavailable. This content isn't available, try \
                 again later. The current session has been rate-limited by YouTube for up to an \
                 hour. It is recommended to use `-t sleep` to add a delay between video requests to \
                 avoid exceeding the rate limit. For more information, refer to \
                 https://github.com/yt-dlp/yt-dlp/wiki/Extractors#this-content-isnt-available-try-again-later",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "private_video",
        class: Terminal,
        any: &["private video"],
        reason: "the owner has not made the video public",
        sample: "ERROR: [youtube] M7mKMWjAxG8: Private video. Sign in if you've been granted access \
                 to this video",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "terms_violation",
        class: Terminal,
        any: &["removed for violating"],
        reason: "the site has removed the video",
        sample: "ERROR: [youtube] Saix8wDp2iA: This video has been removed for violating YouTube's \
                 Terms of Service",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "unavailable",
        class: Terminal,
        any: &["video unavailable"],
        reason: "the site does not offer the video",
        sample: "ERROR: [youtube] qaImFO_DgAM: Video unavailable. This content isn’t available.",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "age_restricted",
        class: Terminal,
        any: &["sign in to confirm your age", "age restricted"],
        reason: "the site shows the video only to accounts of adults",
        sample: "ERROR: [youtube] fVs0suPHAX8: Sign in to confirm your age. This video may be \
                 inappropriate for some users.",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "invalid_format",
        class: Terminal,
        any: &["requested format is not available"],
        reason: "the video does not exist in the format that `--format` asks for",
        sample: "ERROR: [youtube] x: Requested format is not available. Use --list-formats for a \
                 list of available formats",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "bot_check",
        class: BotCheck,
        all: &["sign in to confirm you", "not a bot"],
        reason: "the site suspects a bot; slower requests or cookies of a browser help",
        sample: "ERROR: [youtube] tpUr8xVxj-w: Sign in to confirm you’re not a bot. Use \
                 --cookies-from-browser or --cookies for the authentication.",
        ..BuiltIn::EMPTY
    },
];
