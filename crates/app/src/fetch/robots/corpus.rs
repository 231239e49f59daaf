//! Compares decisions with those of `texting_robots`, over files shaped like real ones.

use super::*;

/// Files, each after a line with its name. Words in capitals stand for what an editor would change.
const FILES: &str = include_str!("corpus.txt");

const PATHS: [&str; 60] = [
    "/",
    "/index.html",
    "/robots.txt",
    "/a",
    "/a/",
    "/a/b",
    "/a/b/c",
    "/a/x/c",
    "/a/private/",
    "/a/private/open/x",
    "/a/open",
    "/b",
    "/b/",
    "/b/open",
    "/b$c",
    "/a$",
    "/private",
    "/private/",
    "/private/open",
    "/private/x/private/x",
    "/Private/",
    "/search",
    "/search?q=1",
    "/SEARCH/x",
    "/tmp/x",
    "/page",
    "/page.html",
    "/x.pdf",
    "/x.pdf?y",
    "/x.zip?y",
    "/x/y/z.tmp",
    "/?",
    "/?sort=1",
    "/list?page=2&sort=asc",
    "/list?page=2",
    "/list?sort=asc&page=2",
    "/caf%C3%A9",
    "/caf%c3%a9/menu",
    "/ツ/x",
    "/~user/",
    "/%7Euser/x",
    "/%7eother/",
    "/a%2Fb",
    "/a%2fb",
    "/c/d",
    "/c%2Fd",
    "/a%20b",
    "/c d",
    "/a+b",
    "/c,d;e",
    "/a//b",
    "//x",
    "/a-*.html",
    "/a-%2A.html",
    "/b-$.html",
    "/a:b@c",
    "/g=h&i",
    "/d!e(f)",
    "/aaaaaaaaaaaaaaaaaaaaaaaaaaac",
    "/a%EF%BF%BDb",
];

const MORE_PATHS: [&str; 40] = [
    "/wp-admin/",
    "/wp-admin/admin-ajax.php",
    "/blog/feed/",
    "/?s=x",
    "/core/x.css",
    "/core/x.css?v=1",
    "/core/x.php",
    "/?q=admin/x",
    "/w/index.php",
    "/w/load.php?x",
    "/wiki/Special:Search",
    "/wiki/Special%3ASearch",
    "/wiki/Sp%C3%A9cial:X",
    "/wiki/Main_Page",
    "/me/repo/pulse",
    "/me/repo/tree/master/x",
    "/me/repo/tree/other",
    "/me/repo/blob/master/a/b",
    "/me/repo/blob/x/a/b",
    "/?tab=achievements&achievement=x",
    "/me?tab=stars",
    "/checkout",
    "/collections/a+b",
    "/collections/a%2Bb",
    "/collections/a%2bb",
    "/shop.atom",
    "/viewtopic.php?t=1",
    "/viewtopic.php?p=1",
    "/viewtopic.php?t=1&sid=2",
    "/memberlist.php",
    "/svc/x",
    "/svc/games/x",
    "/news?x=1&query=y",
    "/cgi-bin/x",
    "/~student/",
    "/x;jsessionid=1",
    "/a/x&y",
    "/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t/u/v/w/x/y/z/open",
    "/a/b/c/d/e/f/g/h/i/j/k/l/m/n/o/p/q/r/s/t/u/v/w/x/y/z/x",
    "/1/2/3/4/5/6/7/x",
];

fn files() -> Vec<(&'static str, Vec<u8>)> {
    let mut files: Vec<(&str, Vec<u8>)> = Vec::new();
    for line in FILES.lines() {
        if let Some(name) = line.strip_prefix("=== ") {
            files.push((name, Vec::new()));
        } else if let Some((_, body)) = files.last_mut() {
            body.extend_from_slice(expand(line).as_slice());
        }
    }
    files
}

/// One line of a file with its end.
fn expand(line: &str) -> Vec<u8> {
    if line == "REPEAT" {
        let lines = (0..10_000).map(|n| format!("Disallow: /folder-{n}/*/page\n"));
        return lines.collect::<String>().into_bytes();
    }
    let (line, end) = match (line.strip_suffix("CRLF"), line.strip_suffix("CR")) {
        (Some(line), _) => (line, "\r\n"),
        (_, Some(line)) => (line, "\r"),
        _ => (line, "\n"),
    };
    let line = line.replace("BOM", "\u{feff}");
    let mut bytes: Vec<u8> = line.replace("BAD", "\u{1}").into_bytes();
    for byte in &mut bytes {
        if *byte == 1 {
            *byte = 0xff;
        }
    }
    bytes.extend_from_slice(end.as_bytes());
    bytes
}

/// Where the other parser decides differently: the file, for how many paths, and why ours is right.
/// Sections are those of RFC 9309.
const DIFFERENCES: [(&str, usize, &str); 10] = [
    (
        "rule without a slash",
        4,
        "2.2: not in the grammar; `private` can only mean `/private`",
    ),
    (
        "dollar alone and inside",
        1,
        "2.2.3: `$` is special at the end only",
    ),
    (
        "percent escapes of letters",
        14,
        "2.2.2: escapes of unreserved characters are decoded",
    ),
    (
        "percent escapes of slashes",
        1,
        "2.2.2: `%2f` and `%2F` are the same octet",
    ),
    ("lower case escapes", 2, "2.2.2: the same"),
    (
        "unicode rules",
        1,
        "2.2.2: the same, of an octet outside of ASCII",
    ),
    ("tilde", 2, "2.2.2: `~` is unreserved"),
    (
        "crawl delay between agents",
        11,
        "2.2.4: other records do not end a group",
    ),
    (
        "agent with version",
        13,
        "2.2.1: a group is chosen by product token",
    ),
    (
        "escaped wildcards",
        2,
        "2.2.3: `%2A` and `%24` stand for the characters",
    ),
];

#[test]
fn decides_like_another_parser() {
    let files = files();
    assert!(files.len() >= 60, "{}", files.len());
    let mut decisions = [0, 0];
    for (name, body) in &files {
        let ours = RobotsRules::parse(body, "tidegate/0.1");
        let theirs = texting_robots::Robot::new("tidegate", body).unwrap();
        let mut differences = Vec::new();
        for path in PATHS.iter().chain(&MORE_PATHS) {
            let url = Url::parse(&format!("https://example.com{path}")).unwrap();
            let is_allowed = ours.allows(&url);
            decisions[usize::from(is_allowed)] += 1;
            if is_allowed != theirs.allowed(url.as_str()) {
                differences.push((path, is_allowed));
            }
        }
        let expected = DIFFERENCES.iter().find(|(file, ..)| file == name);
        let expected = expected.map_or(0, |(_, count, _)| *count);
        assert_eq!(differences.len(), expected, "{name}: {differences:?}");
    }
    // Neither answer is rare.
    assert!(decisions.iter().all(|&count| count > 500), "{decisions:?}");
}
