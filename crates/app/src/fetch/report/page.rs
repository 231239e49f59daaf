//! The report as one HTML page without external resources.
//!
//! Everything can be read without the script, which only sorts and filters tables. A policy in the
//! page allows this script and this style by their hashes and nothing else, so that no text of a
//! server can become more than text.

use std::sync::LazyLock;

use policy::time::WallTime;
use ring::digest::{SHA256, digest};

use super::plots::{self, Frame};
use super::table::{Cell, Column, Kind, Table};
use super::text::{
    attribute, bytes, count, counted, duration, instant, latency, link, rate, share, shown,
};
use super::{FailedUrl, HostReport, Listed, Report};
use crate::base64;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The policy of every page: for a header, or in the page itself.
pub(super) fn content_security_policy() -> &'static str {
    static POLICY: LazyLock<String> = LazyLock::new(|| {
        let hash = |text: &str| base64::encode(digest(&SHA256, text.as_bytes()).as_ref());
        format!(
            "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
            hash(SCRIPT),
            hash(STYLE)
        )
    });
    &POLICY
}

/// The page. `links` are shown beside its heading, as label and address.
pub(super) fn page(report: &Report, links: &[(&str, &str)]) -> String {
    let sections = sections(report);
    let title = shown(&report.title);
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Report: {title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{}{}{}",
        attribute(content_security_policy()),
        heading(report, links),
        tiles(report),
        contents(&sections),
    );
    for Section {
        id,
        heading,
        html: inner,
        ..
    } in &sections
    {
        html += &format!("<section id=\"{id}\">\n<h2>{heading}</h2>\n{inner}</section>\n");
    }
    html += &format!(
        "<footer>Tidegate {}</footer>\n</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    );
    html
}

/// A part of the page with a heading.
struct Section {
    id: &'static str,
    heading: &'static str,
    /// How many things it lists, for the contents.
    total: Option<u64>,
    html: String,
}

fn heading(report: &Report, links: &[(&str, &str)]) -> String {
    let links = links
        .iter()
        .map(|(label, address)| format!("<a href=\"{}\">{}</a>", attribute(address), shown(label)));
    let links = links.collect::<Vec<_>>().join(" · ");
    let totals = &report.totals;
    let mut ends = vec![format!("{} fetched", count(totals.fetched))];
    let rest = [
        (totals.broken, "broken"),
        (totals.failed, "failed"),
        (totals.denied, "not allowed by robots.txt"),
    ];
    let rest = rest.into_iter().filter(|(number, _)| *number > 0);
    ends.extend(rest.map(|(number, word)| format!("{} {word}", count(number))));
    let requests = totals.requests;
    let refused = share(requests.refused, requests.sent);
    format!(
        "<header>\n<h1>Report: {}</h1>\n<p class=\"when\">{}</p>\n<p class=\"links\">{links}</p>\n\
         <p class=\"summary\">{}: {}. {refused} of {} refused.</p>\n{}</header>\n",
        shown(&report.title),
        when(report),
        counted(totals.urls, "URL"),
        ends.join(", "),
        counted(requests.sent, "request"),
        notes(report),
    )
}

fn when(report: &Report) -> String {
    let started = WallTime::from_unix_millis(report.started_ms);
    let length = duration(report.duration_ms);
    match instant(started) {
        Some((person, machine)) => {
            format!("<time datetime=\"{machine}\">{person}</time>, {length}")
        }
        None => length,
    }
}

/// What a reader must know before reading the figures.
fn notes(report: &Report) -> String {
    let mut notes = String::new();
    if !report.is_complete {
        notes += "<p class=\"warn\">The fetch was interrupted: URLs are left.</p>\n";
    }
    if report.earlier_urls > 0 {
        notes += &format!(
            "<p class=\"warn\">{} finished before this fetch was resumed. Rates over time, holds and \
             refusals of that run are missing; everything else counts both.</p>\n",
            match report.earlier_urls {
                1 => "1 URL was".to_owned(),
                number => format!("{} URLs were", count(number)),
            }
        );
    }
    notes
}

fn tiles(report: &Report) -> String {
    let totals = &report.totals;
    let requests = &totals.requests;
    let per_second = totals.urls.saturating_sub(report.earlier_urls) as f64 * 1000.0
        / report.duration_ms.max(1) as f64;
    let tiles = [
        ("URLs", count(totals.urls), rate(per_second)),
        (
            "Requests",
            count(requests.sent),
            format!("{} accepted", count(requests.accepted)),
        ),
        (
            "Refused",
            count(requests.refused),
            format!("{} throttled", count(totals.throttled)),
        ),
        ("Failed", count(requests.failed), "requests".to_owned()),
        (
            "Waited",
            duration(totals.wait_ms),
            "all URLs added up".to_owned(),
        ),
        (
            "Size",
            bytes(totals.bytes),
            format!("{} unchanged", count(totals.not_modified)),
        ),
    ];
    let tiles = tiles.map(|(name, value, more)| {
        format!("<div><dt>{name}</dt><dd>{value}<small>{more}</small></dd></div>\n")
    });
    format!("<dl class=\"tiles\">\n{}</dl>\n", tiles.concat())
}

fn contents(sections: &[Section]) -> String {
    let items = sections.iter().map(|section| {
        let total = section
            .total
            .map(|total| format!(" <b>{}</b>", count(total)));
        let total = total.unwrap_or_default();
        format!(
            "<li><a href=\"#{}\">{}{total}</a></li>\n",
            section.id, section.heading
        )
    });
    format!(
        "<nav aria-label=\"Sections\"><ul class=\"contents\">\n{}</ul></nav>\n",
        items.collect::<String>()
    )
}

fn sections(report: &Report) -> Vec<Section> {
    let frame = Frame {
        step_ms: report.step_ms,
        duration_ms: report.duration_ms,
    };
    let mut sections = vec![Section {
        id: "course",
        heading: "Responses over time",
        total: None,
        html: plots::all(&report.series, frame),
    }];
    sections.push(hosts(report, frame));
    let lists = [
        failed(
            "broken",
            "Broken links",
            "URLs that the server does not have, or whose redirects lead nowhere.",
            &report.broken_links,
        ),
        failed(
            "failed",
            "Failed URLs",
            "URLs that could not be fetched: the server failed, refused for too long or sent \
             something that cannot be used.",
            &report.failed,
        ),
        slowest(report),
        redirects(report),
        titles(report),
        third_parties(report),
        denied(report),
    ];
    sections.extend(lists.into_iter().flatten());
    sections.push(kinds(report));
    sections
}

fn hosts(report: &Report, frame: Frame) -> Section {
    const COLUMNS: &[Column] = &[
        Column("Host", Kind::Long),
        Column("URLs", Kind::Number),
        Column("Requests", Kind::Number),
        Column("Accepted", Kind::Number),
        Column("Refused", Kind::Number),
        Column("Rejected", Kind::Number),
        Column("Failed", Kind::Number),
        Column("Rate", Kind::Number),
        Column("Limit", Kind::Number),
        Column("Held", Kind::Number),
        Column("Open", Kind::Number),
        Column("p95", Kind::Number),
        Column("Size", Kind::Number),
    ];
    let rows = report.hosts.rows.iter().chain(&report.other_hosts);
    let has_others = report.other_hosts.is_some();
    let table = Table {
        id: "hosts",
        caption: "Hosts",
        columns: COLUMNS,
        sorted: Some((2, true)),
        rows: rows.map(host_row).collect(),
        // The row of the others stands for all that are left out.
        total: (report.hosts.total, false),
    };
    let mut html = "<p class=\"about\">Refused: for the pace, with 429 or 503. Rejected: any other \
                    4xx, such as 404. Rate: at which requests left in the end; limit: what the \
                    server accepts, as far as the gate learned it. Held and open: how long the gate \
                    was held, and its breaker not closed.</p>\n"
        .to_owned();
    html += &table.html();
    if has_others {
        html += "<p class=\"note\"><code>_other</code> is all hosts after the first 1,000, \
                 together.</p>\n";
    }
    let plotted = report.hosts.rows.iter();
    let plotted = plotted.filter_map(|host| host.series.as_ref().map(|series| (host, series)));
    for (index, (host, series)) in plotted.enumerate() {
        // The busiest are shown; the rest would fill the page.
        let open = if index < OPEN_PLOTS { " open" } else { "" };
        html += &format!(
            "<details class=\"host\"{open}><summary>{} <small>{}</small></summary>\n{}{}</details>\n",
            shown(&host.key),
            host_summary(host),
            host_errors(host),
            plots::host(host, series, frame)
        );
    }
    Section {
        id: "hosts",
        heading: "Hosts",
        total: Some(report.hosts.total),
        html,
    }
}

/// Hosts whose plots are shown when the page opens.
const OPEN_PLOTS: usize = 3;

fn host_row(host: &HostReport) -> Vec<Cell> {
    let requests = &host.requests;
    let time = |millis: u64| match millis {
        0 => Cell::number("–".to_owned(), 0.0),
        _ => Cell::number(duration(millis), millis as f64),
    };
    let per_second = |value: Option<f64>| Cell::optional(value, || rate(value.unwrap_or_default()));
    let p95 = host.latency_p95_ms;
    vec![
        Cell::text(format!("<bdi>{}</bdi>", shown(&host.key))),
        Cell::count(host.urls),
        Cell::count(requests.sent),
        Cell::count(requests.accepted),
        Cell::count(requests.refused),
        Cell::count(requests.rejected),
        Cell::count(requests.failed),
        per_second(host.rate_per_second),
        per_second(host.ceiling),
        time(host.held_ms),
        time(host.open_ms),
        Cell::optional(p95.map(|p95| p95 as f64), || {
            latency(p95.unwrap_or_default())
        }),
        Cell::number(bytes(host.bytes), host.bytes as f64),
    ]
}

fn host_summary(host: &HostReport) -> String {
    let mut parts = vec![counted(host.requests.sent, "request")];
    if host.requests.refused > 0 {
        parts.push(format!("{} refused", count(host.requests.refused)));
    }
    if host.requests.failed > 0 {
        parts.push(format!("{} failed", count(host.requests.failed)));
    }
    if host.held_ms > 0 {
        parts.push(format!("held for {}", duration(host.held_ms)));
    }
    if host.open_ms > 0 {
        parts.push(format!("breaker open for {}", duration(host.open_ms)));
    }
    parts.join(" · ")
}

fn host_errors(host: &HostReport) -> String {
    if host.errors.is_empty() {
        return String::new();
    }
    let errors = host.errors.iter();
    let errors = errors.map(|one| format!("{} <code>{}</code>", count(one.urls), one.error));
    format!(
        "<p class=\"note\">URLs by error: {}.</p>\n",
        errors.collect::<Vec<_>>().join(" · ")
    )
}

fn failed(
    id: &'static str,
    heading: &'static str,
    about: &str,
    list: &Listed<FailedUrl>,
) -> Option<Section> {
    const COLUMNS: &[Column] = &[
        Column("URL", Kind::Long),
        Column("Result", Kind::Text),
        Column("Attempts", Kind::Number),
        Column("Found on", Kind::Long),
    ];
    let rows = list.rows.iter().map(|row| {
        vec![
            Cell::text(link(&row.url)),
            Cell::text(result(row)),
            Cell::count(u64::from(row.attempts)),
            Cell::text(links(&row.sources)),
        ]
    });
    section(
        id,
        heading,
        about,
        list,
        Table {
            id,
            caption: heading,
            columns: COLUMNS,
            sorted: None,
            rows: rows.collect(),
            total: (list.total, list.is_at_least),
        },
    )
}

/// A section with a table; `None` if the list is empty.
fn section<T>(
    id: &'static str,
    heading: &'static str,
    about: &str,
    list: &Listed<T>,
    table: Table,
) -> Option<Section> {
    (list.total > 0).then(|| Section {
        id,
        heading,
        total: Some(list.total),
        html: format!("<p class=\"about\">{about}</p>\n{}", table.html()),
    })
}

/// The status and the error of a URL that was not fetched.
fn result(row: &FailedUrl) -> String {
    let status = row.status.map(|status| format!("<b>{status}</b> "));
    let mut html = format!("{}<code>{}</code>", status.unwrap_or_default(), row.error);
    if let Some(message) = &row.message {
        html += &format!("<br><small>{}</small>", shown(message));
    }
    html
}

/// A few links, some more folded away; a page with all of them would be too long.
fn links(urls: &[String]) -> String {
    const SHOWN: usize = 2;
    const FOLDED: usize = 4;
    let item = |url: &String| format!("<li>{}</li>", link(url));
    let first: String = urls.iter().take(SHOWN).map(item).collect();
    if urls.is_empty() {
        return "–".to_owned();
    }
    let rest = urls.len().saturating_sub(SHOWN);
    if rest == 0 {
        return format!("<ul>{first}</ul>");
    }
    let mut folded: String = urls.iter().skip(SHOWN).take(FOLDED).map(item).collect();
    if rest > FOLDED {
        folded += &format!("<li>and {} in the JSON report</li>", rest - FOLDED);
    }
    format!("<ul>{first}</ul><details><summary>{rest} more</summary><ul>{folded}</ul></details>")
}

fn slowest(report: &Report) -> Option<Section> {
    const COLUMNS: &[Column] = &[
        Column("URL", Kind::Long),
        Column("Latency", Kind::Number),
        Column("Waited", Kind::Number),
        Column("Attempts", Kind::Number),
        Column("Status", Kind::Number),
        Column("Size", Kind::Number),
    ];
    let list = &report.slowest;
    let rows = list.rows.iter().map(|row| {
        let status = row.status.map(f64::from);
        vec![
            Cell::text(link(&row.url)),
            Cell::number(latency(row.latency_ms), row.latency_ms as f64),
            Cell::number(duration(row.wait_ms), row.wait_ms as f64),
            Cell::count(u64::from(row.attempts)),
            Cell::optional(status, || status.unwrap_or_default().to_string()),
            Cell::number(bytes(row.bytes), row.bytes as f64),
        ]
    });
    let about = "Latency is the time from the last request to the head of its response.";
    section(
        "slowest",
        "Slowest URLs",
        about,
        list,
        Table {
            id: "slowest",
            caption: "Slowest URLs",
            columns: COLUMNS,
            sorted: Some((1, true)),
            rows: rows.collect(),
            total: (list.total, list.is_at_least),
        },
    )
}

fn redirects(report: &Report) -> Option<Section> {
    const COLUMNS: &[Column] = &[
        Column("URL", Kind::Long),
        Column("Leads to", Kind::Long),
        Column("Status there", Kind::Number),
    ];
    let list = &report.redirects;
    let rows = list.rows.iter().map(|row| {
        let status = row.status.map(f64::from);
        vec![
            Cell::text(link(&row.url)),
            Cell::text(link(&row.final_url)),
            Cell::optional(status, || status.unwrap_or_default().to_string()),
        ]
    });
    let about = "URLs that led to another one. A link to the target saves a request.";
    section(
        "redirects",
        "Redirects",
        about,
        list,
        Table {
            id: "redirects",
            caption: "Redirects",
            columns: COLUMNS,
            sorted: None,
            rows: rows.collect(),
            total: (list.total, list.is_at_least),
        },
    )
}

fn titles(report: &Report) -> Option<Section> {
    const COLUMNS: &[Column] = &[
        Column("Title", Kind::Long),
        Column("Pages", Kind::Number),
        Column("URLs", Kind::Long),
    ];
    let list = &report.duplicate_titles;
    let rows = list.rows.iter().map(|row| {
        vec![
            Cell::text(format!("<bdi>{}</bdi>", shown(&row.title))),
            Cell::count(row.pages),
            Cell::text(links(&row.urls)),
        ]
    });
    let about = "Titles that several pages have.";
    section(
        "titles",
        "Duplicate titles",
        about,
        list,
        Table {
            id: "titles",
            caption: "Duplicate titles",
            columns: COLUMNS,
            sorted: Some((1, true)),
            rows: rows.collect(),
            total: (list.total, list.is_at_least),
        },
    )
}

fn third_parties(report: &Report) -> Option<Section> {
    const COLUMNS: &[Column] = &[
        Column("Host", Kind::Long),
        Column("Pages", Kind::Number),
        Column("Tracker", Kind::Text),
    ];
    let list = &report.third_parties;
    let rows = list.rows.iter().map(|row| {
        let by = match (&row.owner, &row.category) {
            (Some(owner), Some(category)) => format!(" {}, {}", shown(owner), shown(category)),
            _ => String::new(),
        };
        let tracker = if row.is_tracker {
            format!("<span class=\"flag\">⚑ known tracker</span>{by}")
        } else {
            "–".to_owned()
        };
        vec![
            Cell::text(format!("<bdi>{}</bdi>", shown(&row.host))),
            Cell::count(row.pages),
            Cell::text(tracker),
        ]
    });
    let trackers = list.rows.iter().filter(|row| row.is_tracker).count();
    let about = format!(
        "Hosts of other sites from which pages load scripts, images and the like. {} known as \
         trackers.",
        match trackers {
            0 => "None of those listed are".to_owned(),
            1 => "1 of those listed is".to_owned(),
            number => format!("{} of those listed are", count(number as u64)),
        }
    );
    section(
        "third-parties",
        "Third parties",
        &about,
        list,
        Table {
            id: "third-parties",
            caption: "Third parties",
            columns: COLUMNS,
            sorted: Some((1, true)),
            rows: rows.collect(),
            total: (list.total, list.is_at_least),
        },
    )
}

fn denied(report: &Report) -> Option<Section> {
    const COLUMNS: &[Column] = &[Column("URL", Kind::Long), Column("Reason", Kind::Text)];
    let list = &report.denied;
    let rows = list.rows.iter().map(|row| {
        vec![
            Cell::text(link(&row.url)),
            Cell::text(format!("<code>{}</code>", row.error)),
        ]
    });
    let about =
        "URLs that were not requested: a robots.txt does not allow them, or could not be read.";
    section(
        "denied",
        "Not allowed by robots.txt",
        about,
        list,
        Table {
            id: "denied",
            caption: "Not allowed by robots.txt",
            columns: COLUMNS,
            sorted: None,
            rows: rows.collect(),
            total: (list.total, list.is_at_least),
        },
    )
}

/// Statuses, errors and content types side by side.
fn kinds(report: &Report) -> Section {
    const STATUSES: &[Column] = &[Column("Status", Kind::Text), Column("URLs", Kind::Number)];
    const ERRORS: &[Column] = &[Column("Error", Kind::Text), Column("URLs", Kind::Number)];
    const TYPES: &[Column] = &[
        Column("Content type", Kind::Long),
        Column("URLs", Kind::Number),
        Column("Size", Kind::Number),
    ];
    let statuses = report.statuses.iter().map(|row| {
        vec![
            Cell::number(row.status.to_string(), f64::from(row.status)),
            Cell::count(row.urls),
        ]
    });
    let errors = report.errors.iter().map(|row| {
        vec![
            Cell::text(format!("<code>{}</code>", row.error)),
            Cell::count(row.urls),
        ]
    });
    let types = report.content_types.rows.iter().map(|row| {
        vec![
            Cell::text(format!("<bdi>{}</bdi>", shown(&row.content_type))),
            Cell::count(row.urls),
            Cell::number(bytes(row.bytes), row.bytes as f64),
        ]
    });
    let table = |id, caption, columns, sorted, rows: Vec<_>, is_at_least| Table {
        id,
        caption,
        columns,
        sorted: Some(sorted),
        total: (rows.len() as u64, is_at_least),
        rows,
    };
    let is_at_least = report.content_types.is_at_least;
    let tables = [
        table(
            "statuses",
            "Statuses",
            STATUSES,
            (0, false),
            statuses.collect(),
            false,
        ),
        table(
            "errors",
            "Errors",
            ERRORS,
            (1, true),
            errors.collect(),
            false,
        ),
        table(
            "types",
            "Content types",
            TYPES,
            (1, true),
            types.collect(),
            is_at_least,
        ),
    ];
    let tables = tables.iter().filter(|table| !table.rows.is_empty());
    let tables =
        tables.map(|table| format!("<div><h3>{}</h3>\n{}</div>\n", table.caption, table.html()));
    Section {
        id: "kinds",
        heading: "Statuses, errors, content types",
        total: None,
        html: format!(
            "<div class=\"columns\">\n{}</div>\n",
            tables.collect::<String>()
        ),
    }
}
