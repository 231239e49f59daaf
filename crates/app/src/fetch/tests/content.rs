//! What servers send: robots.txt, sitemaps, pages, and what is meant to do harm.

use std::io::Write;
use std::time::Instant;

use super::*;

/// Without limits, with robots.txt.
const POLITE: &str = "[gate]\nenabled = false\n";

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

/// A plan that crawls.
fn crawl(urls: &[String], same_host: bool) -> FetchPlan {
    let mut plan = plan(urls);
    plan.scope = Scope::new(true, 5, same_host, &[], &["[.]pdf$".to_owned()]).unwrap();
    plan
}

/// The paths of the URLs that were fetched, and of those that failed, with the error.
fn outcomes(server: &Server, records: &[UrlRecord]) -> Vec<String> {
    let base = server.url("");
    let outcome = |record: &UrlRecord| {
        let url = record.url.strip_prefix(&base).unwrap_or(&record.url);
        match record.error {
            Some(error) => format!("{url} {error}"),
            None => url.to_owned(),
        }
    };
    records.iter().map(outcome).collect()
}

#[test]
fn reads_robots_txt_by_its_status() {
    let denies = "User-agent: *\nDisallow: /";
    let check = |reply: Reply, expected: &str| {
        let server = Server::start(move |path| match path {
            "/robots.txt" => reply.clone(),
            "/rules" => Reply::text(denies),
            path => Reply::text(path),
        });
        let (_, records) = fetch(POLITE, plan(&[server.url("/a")]));
        assert_eq!(outcomes(&server, &records), [expected]);
        let requests = u32::from(!expected.contains(' '));
        assert_eq!(server.requests("/a"), requests, "{expected}");
    };
    check(Reply::text(denies), "/a robots_denied");
    check(Reply::text("User-agent: *\nDisallow: /b"), "/a");
    for status in [400, 401, 403, 404, 410] {
        check(Reply::status(status), "/a");
    }
    for status in [429, 500, 503] {
        check(Reply::status(status), "/a robots_unavailable");
    }
    check(Reply::redirect("/rules"), "/a robots_denied");
    check(Reply::redirect("/robots.txt"), "/a");
    check(Reply::redirect("mailto:x@example.com"), "/a");
    let packed = Reply::status(200).with_header("content-encoding", "gzip");
    check(
        packed
            .clone()
            .with_body("text/plain", &gzip(denies.as_bytes())),
        "/a robots_denied",
    );
    check(
        packed.with_body("text/plain", b"broken"),
        "/a robots_unavailable",
    );
}

#[test]
fn reads_500_kib_of_robots_txt() {
    let start = "User-agent: *\nDisallow: /a\n#";
    let comment = "x".repeat(500 * 1024 - start.len() - "\nDisallow: /b".len());
    let rules = format!("{start}{comment}\nDisallow: /bcdef\nDisallow: /c\n");
    let rules = Reply::text(&rules);
    let server = Server::start(move |path| match path {
        "/robots.txt" => rules.clone(),
        path => Reply::text(path),
    });
    let urls = ["/a", "/b", "/bcdef", "/c"].map(|path| server.url(path));
    for settings in [
        POLITE,
        "[gate]\nenabled = false\n[fetch]\nmax_body = \"1KiB\"\n",
    ] {
        let (_, records) = fetch(settings, plan(&urls));
        assert_eq!(
            outcomes(&server, &records),
            ["/a robots_denied", "/b", "/bcdef", "/c"]
        );
    }
}

#[test]
fn waits_for_the_crawl_delay_up_to_a_cap() {
    let server = Server::start(|path| match path {
        "/robots.txt" => Reply::text("User-agent: *\nCrawl-delay: 3600"),
        path => Reply::text(path),
    });
    let urls = ["/a", "/b", "/c", "/d"].map(|path| server.url(path));
    let started = Instant::now();
    let (_, records) = fetch(
        &format!("{POLITE}[fetch]\nmax_crawl_delay = \"50ms\"\n"),
        plan(&urls),
    );
    assert_eq!(outcomes(&server, &records), ["/a", "/b", "/c", "/d"]);
    // The other bound is that it ends at all.
    assert!(started.elapsed() >= Duration::from_millis(150));
}

#[test]
fn fetches_what_sitemaps_list() {
    let server = Server::start(|path| {
        match path {
        "/index.xml" => Reply::status(200).with_body(
            "application/xml",
            b"<sitemapindex><sitemap><loc>/one.xml.gz</loc></sitemap><sitemap><loc>/two.txt</loc></sitemap>
              <sitemap><loc>/bad.xml</loc></sitemap><sitemap><loc>/index.xml</loc></sitemap></sitemapindex>",
        ),
        "/one.xml.gz" => Reply::status(200).with_body(
            "application/gzip",
            &gzip(b"<urlset><url><loc>/a?x&amp;y</loc></url><url><loc>ftp://x.example/</loc></url></urlset>"),
        ),
        "/two.txt" => Reply::status(200).with_body("text/plain", b"not a URL\n"),
        "/bad.xml" => Reply::html("<html>"),
        path => Reply::text(path),
    }
    });
    let mut plan = plan(&[]);
    plan.sitemaps = vec![server.url("/index.xml").parse().unwrap()];
    let (_, records) = fetch(FAST, plan);
    let expected = [
        "/a?x&y",
        "/bad.xml bad_sitemap",
        "/index.xml",
        "/one.xml.gz",
        "/two.txt bad_sitemap",
    ];
    assert_eq!(outcomes(&server, &records), expected);
}

#[test]
fn follows_links_within_its_scope() {
    let other = Server::start(Reply::text);
    let away = other.url("/away");
    let server = Server::start(move |path| {
        match path {
        "/" => Reply::html(&format!(
            "<title>Start &amp; end</title><a href='a#x'>a</a><a href=/a>a</a><a href=x.pdf>no</a><a rel=nofollow href=no>
             <a href='{away}'>away</a><a href='mailto:x@example.com'><script>'<a href=no>'</script>"
        )),
        "/a" => Reply::html("<base href='/dir/'><a href=b>b</a><a href='/?'>start</a>"),
        "/dir/b" => Reply::html("<meta name=robots content=nofollow><a href=no>"),
        path => Reply::text(path),
    }
    });
    let (_, records) = fetch(POLITE, crawl(&[server.url("/")], true));
    assert_eq!(outcomes(&server, &records), ["/", "/?", "/a", "/dir/b"]);
    assert_eq!(records[0].title.as_deref(), Some("Start & end"));
    assert_eq!(
        (records[3].depth, records[3].source.as_ref()),
        (2, Some(&server.url("/a")))
    );
    assert_eq!(other.requests("/away"), 0);
}

#[test]
fn checks_the_addresses_of_crawled_links() {
    let other = Server::start(Reply::text);
    let links = [
        other.url("/secret"),
        other.url("/named").replace("127.0.0.1", "localhost"),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "http://[::ffff:169.254.169.254]/latest".to_owned(),
        "http://0x7f000001/".to_owned(),
    ];
    let page: String = links
        .iter()
        .map(|link| format!("<a href='{link}'>x</a>"))
        .collect();
    let server = Server::start(move |path| match path {
        "/" => Reply::html(&page),
        path => Reply::text(path),
    });
    for settings in [POLITE, FAST] {
        let (_, records) = fetch(settings, crawl(&[server.url("/")], false));
        assert_eq!(records.len(), 1 + links.len());
        let refused = records
            .iter()
            .filter(|record| record.error == Some(UrlError::AddressNotAllowed));
        assert_eq!(refused.count(), links.len(), "{records:#?}");
    }
    for path in ["/secret", "/named", "/robots.txt", "/"] {
        assert_eq!(other.requests(path), 0, "{path}");
    }
}

#[test]
fn ends_what_has_no_end() {
    let bomb = gzip(&vec![0; 64 << 20]);
    let server = Server::start(move |path| match path {
        "/bomb" => Reply::status(200)
            .with_header("content-encoding", "gzip")
            .with_body("text/html", &bomb),
        "/body" => Reply::endless_body("text/html"),
        "/head" => Reply::endless_head(),
        "/sitemap.xml" => Reply::endless_body("application/xml"),
        "/unknown" => Reply::text("x").with_header("content-encoding", "compress"),
        "/broken" => Reply::text("x").with_header("content-encoding", "br"),
        path => Reply::text(path),
    });
    let mut plan = plan(
        &["/body", "/bomb", "/broken", "/head", "/ok", "/unknown"].map(|path| server.url(path)),
    );
    plan.sitemaps = vec![server.url("/sitemap.xml").parse().unwrap()];
    let (_, records) = fetch(FAST, plan);
    assert_eq!(
        outcomes(&server, &records),
        [
            "/body body_too_large",
            "/bomb bad_encoding",
            "/broken bad_encoding",
            "/head exhausted",
            "/ok",
            "/sitemap.xml bad_sitemap",
            "/unknown bad_encoding",
        ]
    );
    let unknown = records[6].message.as_deref().unwrap();
    assert!(unknown.contains("`compress`"), "{unknown}");
}

#[test]
fn reads_pages_that_are_no_utf_8() {
    let server = Server::start(|path| match path {
        "/" => Reply::status(200).with_body(
            "text/html",
            b"<title>caf\xe9</title>\xff<a href='/\xe9?\xe9'>\xfe<a href=/b>",
        ),
        path => Reply::text(path),
    });
    let (_, records) = fetch(FAST, crawl(&[server.url("/")], true));
    assert_eq!(outcomes(&server, &records), ["/", "/%C3%A9?%E9", "/b"]);
    assert_eq!(records[0].title.as_deref(), Some("café"));
}
