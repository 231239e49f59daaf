//! yt-dlp: its failures, classified by its pack.

use std::fs;
use std::path::Path;
use std::process::Command;

use app::run::rules::Class::{BotCheck, Retryable, Success, Terminal};

use crate::client::of_python;
use crate::packs::check;
use crate::scripted::{Reply, ScriptedServer};

/// The options of the guide: yt-dlp's own retries are off.
const NO_RETRIES: [&str; 8] = [
    "--retries",
    "0",
    "--extractor-retries",
    "0",
    "--fragment-retries",
    "0",
    "--file-access-retries",
    "0",
];

/// An extractor that yt-dlp loads as a plugin: errors of sites that a test must not ask.
const PLUGIN: &str = r#"
from yt_dlp.extractor.common import InfoExtractor
from yt_dlp.utils import ExtractorError


class ExampleIE(InfoExtractor):
    _VALID_URL = r'example:(?P<id>.+)'

    def _real_extract(self, url):
        video_id = self._match_id(url)
        if video_id == 'drm':
            self.report_drm(video_id)
        message = "Private video. Sign in if you've been granted access to this video"
        raise ExtractorError(message, expected=True)
"#;

/// yt-dlp with a plugin; downloads go to `folder`.
pub(crate) fn yt_dlp(folder: &Path) -> Command {
    let plugins = folder.join("yt_dlp_plugins/extractor");
    fs::create_dir_all(&plugins).unwrap();
    fs::write(plugins.join("example.py"), PLUGIN).unwrap();
    let mut command = of_python("yt-dlp");
    command.env("PYTHONPATH", folder).current_dir(folder);
    command.args(["--ignore-config", "--no-cache-dir"]);
    command.args(NO_RETRIES);
    command.args(["--output", "%(id)s.%(ext)s"]);
    command
}

#[test]
fn failures_are_classified_by_its_pack_and_not_retried_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let server = ScriptedServer::start(|path, number| match (path, number) {
        // The page is a video, whose data then fails.
        ("/data.mp4", 1) | ("/whole.mp4", _) => Reply::File("video/mp4", vec![7; 1000]),
        ("/hang.mp4", _) => Reply::Hang,
        ("/challenge", _) => Reply::Challenge,
        ("/page", _) => Reply::Page(200, "<html><body>no video</body></html>"),
        (path, _) => Reply::Status(path[1..4].parse().unwrap_or(503)),
    });
    let run = |item: &str, class, rule: &str| {
        let mut command = yt_dlp(folder.path());
        command.args(["--socket-timeout", "1", item]);
        check(
            "yt-dlp",
            &mut command,
            class,
            (!rule.is_empty()).then_some(rule),
        );
    };
    for (path, requests, class, rule) in [
        ("/whole.mp4", 2, Success, ""),
        ("/404.mp4", 1, Terminal, "not_found"),
        ("/429.mp4", 1, Retryable, "rate_limited"),
        ("/data.mp4", 2, Retryable, "server_error"),
        ("/hang.mp4", 1, Retryable, "network"),
        ("/challenge", 1, BotCheck, "captcha"),
    ] {
        run(&server.url(path), class, rule);
        assert_eq!(server.count(path), requests, "{path}");
    }
    run(&server.url("/page"), Terminal, "invalid_url");
    run("http://nonexistent.invalid/a.mp4", Retryable, "network");
    run("example:private", Terminal, "private_video");
    run("example:drm", Terminal, "drm");
    run("--no-such-option", Terminal, "usage");
}
