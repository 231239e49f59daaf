//! The table of figures: a row for each, a column for every strategy, and its meaning.

use super::axis::{number, thousands};
use super::{Report, StrategyRun, escape};

/// The table as an HTML element.
pub(super) fn table(report: &Report<'_>) -> String {
    let mut html = String::from("<table>\n<thead><tr><th scope=\"col\">Figure</th>");
    for run in &report.runs {
        html += &format!(
            "<th scope=\"col\" class=\"value\">{}</th>",
            escape(&run.strategy)
        );
    }
    html += "<th scope=\"col\">Meaning</th></tr></thead>\n<tbody>\n";
    for row in rows(report) {
        row_html(&mut html, &row);
    }
    html += "</tbody>\n</table>\n";
    html
}

/// The value of a figure as text; `–` for none.
pub(super) fn shown(value: Option<f64>, unit: Unit) -> String {
    let Some(value) = value else {
        return "–".to_owned();
    };
    match unit {
        Unit::Share => share(value),
        Unit::Count => thousands(&format!("{value:.0}")),
        Unit::Seconds => format!("{} s", number(value)),
        Unit::Milliseconds => format!("{} ms", number(value)),
        Unit::Index => format!("{value:.3}"),
    }
}

/// How the value of a figure is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// A share, in per cent.
    Share,
    /// A count.
    Count,
    /// A time in seconds.
    Seconds,
    /// A time in milliseconds.
    Milliseconds,
    /// From 0 to 1, with three decimals.
    Index,
}

fn share(value: f64) -> String {
    let percent = value * 100.0;
    // Few is not shown as none, and most not as all.
    if percent > 0.0 && percent < 0.1 {
        return "< 0.1 %".to_owned();
    }
    if percent < 100.0 && percent > 99.9 {
        return "> 99.9 %".to_owned();
    }
    format!("{percent:.1} %")
}

/// The unit and the meaning of each figure, by its name.
pub(super) const MEANINGS: [(&str, Unit, &str); 15] = [
    (
        "goodput_ratio",
        Unit::Share,
        "Accepted requests over the upstream's capacity.",
    ),
    (
        "goodput_ratio_settled",
        Unit::Share,
        "The same from 60 s on, when the limit should be known.",
    ),
    ("sent", Unit::Count, "Requests sent."),
    ("accepted", Unit::Count, "Responses with 2xx or 3xx."),
    ("refused", Unit::Count, "Responses with 429, 403 or 503."),
    (
        "failed",
        Unit::Count,
        "Everything else: 500s, refused connections, timeouts.",
    ),
    ("refused_ratio", Unit::Share, "Refused over sent."),
    (
        "early_after_hint",
        Unit::Count,
        "Requests sent before the end of a wait that the server had named.",
    ),
    (
        "bans",
        Unit::Count,
        "How often the upstream banned a client.",
    ),
    ("breaker_opened", Unit::Count, "How often a breaker opened."),
    (
        "max_queue",
        Unit::Count,
        "The longest queue at the upstream, if it has one.",
    ),
    (
        "time_to_90_s",
        Unit::Seconds,
        "Time until 90 % of the capacity was used.",
    ),
    (
        "mean_latency_ms",
        Unit::Milliseconds,
        "From sending to response, accepted requests from 60 s on: mean.",
    ),
    (
        "p99_latency_ms",
        Unit::Milliseconds,
        "The same: 99th percentile.",
    ),
    (
        "jain",
        Unit::Index,
        "Fairness among clients from 100 s on; 1 is equal.",
    ),
];

struct Row {
    name: String,
    values: Vec<String>,
    meaning: String,
}

fn rows(report: &Report<'_>) -> Vec<Row> {
    let mut rows: Vec<Row> = MEANINGS
        .iter()
        .map(|(name, unit, meaning)| {
            row(report, (*name).to_owned(), meaning, |run| {
                let numbers = run.figures.numbers();
                let found = numbers.iter().find(|(other, _)| other == name);
                shown(found.and_then(|(_, value)| *value), *unit)
            })
        })
        .collect();
    rows.extend(outage_rows(report));
    rows.extend(step_rows(report));
    // Figures that apply to no strategy are left out.
    rows.retain(|row| row.values.iter().any(|value| value != "–"));
    rows
}

fn outage_rows(report: &Report<'_>) -> Vec<Row> {
    let count = report.runs.iter().map(|run| run.figures.outages.len());
    let mut rows = Vec::new();
    for index in 0..count.max().unwrap_or(0) {
        let outage = format!("outages[{index}]");
        let sent = format!("Requests sent during outage {}.", index + 1);
        rows.push(row(report, format!("{outage}.sent"), &sent, |run| {
            let outage = run.figures.outages.get(index);
            shown(outage.map(|outage| outage.sent as f64), Unit::Count)
        }));
        let recovery = format!(
            "From the end of outage {} until 90 % of the capacity was used.",
            index + 1
        );
        rows.push(row(
            report,
            format!("{outage}.recovery_s"),
            &recovery,
            |run| {
                let outage = run.figures.outages.get(index);
                time_until(outage.and_then(|outage| outage.recovery_s))
            },
        ));
    }
    rows
}

fn step_rows(report: &Report<'_>) -> Vec<Row> {
    let Some(first) = report.runs.first() else {
        return Vec::new();
    };
    let mut rows = Vec::new();
    for (index, step) in first.figures.steps.iter().enumerate() {
        let meaning = format!(
            "From the step at {} s until 90 % of the capacity was used.",
            number(step.at_s)
        );
        rows.push(row(
            report,
            format!("steps[{index}].settle_s"),
            &meaning,
            |run| {
                let step = run.figures.steps.get(index);
                time_until(step.and_then(|step| step.settle_s))
            },
        ));
    }
    rows
}

/// The time until something that may never have happened.
fn time_until(seconds: Option<f64>) -> String {
    match seconds {
        Some(_) => shown(seconds, Unit::Seconds),
        None => "never".to_owned(),
    }
}

fn row(
    report: &Report<'_>,
    name: String,
    meaning: &str,
    value: impl Fn(&StrategyRun) -> String,
) -> Row {
    Row {
        name,
        values: report.runs.iter().map(value).collect(),
        meaning: meaning.to_owned(),
    }
}

fn row_html(html: &mut String, row: &Row) {
    *html += &format!(
        "<tr><th scope=\"row\"><code>{}</code></th>",
        escape(&row.name)
    );
    for value in &row.values {
        *html += &format!("<td class=\"value\">{}</td>", escape(value));
    }
    *html += &format!("<td>{}</td></tr>\n", escape(&row.meaning));
}
