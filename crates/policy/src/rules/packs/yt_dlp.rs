//! yt-dlp, and youtube-dl, which has the same messages.
//!
//! Samples are output of yt-dlp 2026.10.26 against local servers and a plugin or, if only YouTube
//! can cause a message, from users' bug reports.

use super::BuiltIn;
use crate::rules::Class::{BotCheck, Retryable, Success, Terminal};

pub(super) const RULES: &[BuiltIn] = &[
    BuiltIn {
        name: "session_rate_limited",
        class: Retryable,
        any: &["rate limited by YouTube"],
        reason: "the site limits the number of requests; this passes",
        sample: "ERROR: [youtube] 8NxoMpXM2oI: Video unavailable. This content isn't \
                 available, try again later. The current session has been rate-limited by \
                 YouTube for up to an hour. It is recommended to use `-t sleep` to add a \
                 delay between video requests to avoid exceeding the rate limit.",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "captcha",
        class: BotCheck,
        any: &["Cloudflare anti-bot challenge", "captcha"],
        reason: "the site suspects a bot; slower requests or cookies of a browser help",
        sample: "ERROR: [generic] Got HTTP Error 403 caused by Cloudflare anti-bot \
                 challenge; see  https://github.com/yt-dlp/yt-dlp#impersonation  for how to \
                 install the required impersonation dependency, and try again with  \
                 --extractor-args \"generic:impersonate\"",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "private_video",
        class: Terminal,
        any: &["private video"],
        reason: "the owner has not made the video public",
        sample: "ERROR: [youtube] M7mKMWjAxG8: Private video. Sign in if you've been granted \
                 access to this video",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "terms_violation",
        class: Terminal,
        any: &["removed for violating"],
        reason: "the site has removed the video",
        sample: "ERROR: [youtube] Saix8wDp2iA: This video has been removed for violating \
                 YouTube's Terms of Service",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "unavailable",
        class: Terminal,
        any: &["video unavailable"],
        reason: "the site does not offer the video",
        sample: "ERROR: [youtube] qaImFO_DgAM: Video unavailable. This content isn’t \
                 available.",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "age_restricted",
        class: Terminal,
        any: &["sign in to confirm your age", "age restricted"],
        reason: "the site shows the video only to accounts of adults",
        sample: "ERROR: [youtube] fVs0suPHAX8: Sign in to confirm your age. This video may \
                 be inappropriate for some users.",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "invalid_format",
        class: Terminal,
        any: &["requested format is not available"],
        reason: "the video does not exist in the format that `--format` asks for",
        sample: "ERROR: [generic] c: Requested format is not available. Use --list-formats \
                 for a list of available formats",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "bot_check",
        class: BotCheck,
        all: &["sign in to confirm you", "not a bot"],
        reason: "the site suspects a bot; slower requests or cookies of a browser help",
        sample: "ERROR: [youtube] tpUr8xVxj-w: Sign in to confirm you’re not a bot. Use \
                 --cookies-from-browser or --cookies for the authentication. See  \
                 https://github.com/yt-dlp/yt-dlp/wiki/FAQ#how-do-i-pass-cookies-to-yt-dlp  \
                 for how to manually pass cookies.",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "members_only",
        class: Terminal,
        any: &["members only content"],
        reason: "the site shows the video only to members of the channel",
        sample: "ERROR: [youtube] zNZLEXsixWs: Join this channel to get access to \
                 members-only content like this video, and other exclusive perks.",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "login_required",
        class: Terminal,
        any: &["only available for registered users"],
        reason: "the site shows the video only after a login",
        sample: "ERROR: [Example] login: This video is only available for registered users. \
                 Use --cookies-from-browser or --cookies for the authentication.",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "geo_restricted",
        class: Terminal,
        any: &[
            "not available from your location",
            "available in your country",
        ],
        reason: "the site does not show the video in this country",
        sample: "ERROR: [Example] geo: This video is not available from your location due to \
                 geo restriction\nYou might want to use a VPN or a proxy server (with \
                 --proxy) to workaround.",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "drm",
        class: Terminal,
        any: &["DRM protected"],
        reason: "the video is encrypted, and yt-dlp does not decrypt it",
        sample: "ERROR: [Example] drm: This video is DRM protected",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "not_found",
        class: Terminal,
        any: &["HTTP Error 404", "HTTP Error 410"],
        all: &["unable to download webpage"],
        reason: "the site has no such page",
        sample: "ERROR: [generic] a: Unable to download webpage: HTTP Error 404: Not Found \
                 (caused by <HTTPError 404: Not Found>)",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "invalid_url",
        class: Terminal,
        any: &[
            "unsupported URL",
            "is not a valid URL",
            "unsupported url scheme",
            "no host given",
        ],
        reason: "yt-dlp cannot read this address",
        sample: "ERROR: Unsupported URL: http://127.0.0.1:38791/p.html",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "rate_limited",
        class: Retryable,
        any: &["HTTP Error 429"],
        reason: "the site limits the number of requests; this passes",
        sample: "ERROR: [generic] a: Unable to download webpage: HTTP Error 429: Too Many \
                 Requests (caused by <HTTPError 429: Too Many Requests>)",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "forbidden",
        class: Retryable,
        any: &["HTTP Error 403"],
        reason: "links of videos expire, and sites answer 403 to clients that send too fast; \
                 it may pass",
        sample: "ERROR: [generic] a: Unable to download webpage: HTTP Error 403: Forbidden \
                 (caused by <HTTPError 403: Forbidden>)",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "server_error",
        class: Retryable,
        any: &[
            "HTTP Error 408",
            "HTTP Error 500",
            "HTTP Error 502",
            "HTTP Error 503",
            "HTTP Error 504",
            "HTTP Error 520",
            "HTTP Error 521",
            "HTTP Error 522",
            "HTTP Error 523",
            "HTTP Error 524",
            "HTTP Error 529",
        ],
        reason: "the server fails or is overloaded; this passes",
        sample: "ERROR: [generic] a: Unable to download webpage: HTTP Error 503: Service \
                 Unavailable (caused by <HTTPError 503: Service Unavailable>)",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "network",
        class: Retryable,
        any: &[
            "TransportError",
            "connection refused",
            "connection reset by peer",
        ],
        reason: "the network failed; this passes",
        sample: "ERROR: [generic] a: Unable to download webpage: [Errno 111] Connection \
                 refused (caused by TransportError('[Errno 111] Connection refused'))",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "usage",
        class: Terminal,
        exits: &[2],
        reason: "yt-dlp does not know one of its options",
        sample: "\nUsage: yt-dlp [OPTIONS] URL [URL...]\n\nyt-dlp: error: no such option: \
                 --bogus",
        ..BuiltIn::EMPTY
    },
    BuiltIn {
        name: "stopped",
        class: Success,
        exits: &[101],
        reason: "yt-dlp stopped where an option such as `--max-downloads` asked it to",
        sample: "[info] Maximum number of downloads reached, stopping due to \
                 --max-downloads\nAborting remaining downloads",
        ..BuiltIn::EMPTY
    },
];
