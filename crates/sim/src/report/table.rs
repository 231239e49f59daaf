//! The table of figures: a row for each, a column for every strategy, and its meaning.

use super::Report;
use crate::measure::{FIGURES, Summary, Unit};
use crate::plot::{escape, number, thousands};

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
pub(super) fn format_value(value: Option<f64>, unit: Unit) -> String {
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

fn share(value: f64) -> String {
    let percent = value * 100.0;
    // A small share is not shown as none, and a large one not as all.
    if percent > 0.0 && percent < 0.1 {
        return "< 0.1 %".to_owned();
    }
    if percent < 100.0 && percent > 99.9 {
        return "> 99.9 %".to_owned();
    }
    format!("{percent:.1} %")
}

struct Row {
    name: String,
    values: Vec<String>,
    meaning: String,
}

fn rows(report: &Report<'_>) -> Vec<Row> {
    let runs: Vec<Summary> = report
        .runs
        .iter()
        .map(|run| Summary::of(&run.figures))
        .collect();
    let row = |name: String, meaning: String, value: &dyn Fn(&Summary) -> String| Row {
        name,
        values: runs.iter().map(value).collect(),
        meaning,
    };
    let mut rows = Vec::new();
    for (name, unit, meaning) in FIGURES {
        rows.push(row(name.to_owned(), meaning.to_owned(), &|run| {
            format_value(run.figure(name), unit)
        }));
    }
    let outages = runs.iter().map(|run| run.outages.len()).max();
    for index in 0..outages.unwrap_or(0) {
        let (name, number) = (format!("outages[{index}]"), index + 1);
        let meaning = format!("Requests sent during outage {number}.");
        rows.push(row(format!("{name}.sent"), meaning, &|run| {
            format_value(run.outage(index, "sent"), Unit::Count)
        }));
        let meaning =
            format!("From the end of outage {number} until 90 % of the capacity was used.");
        rows.push(row(format!("{name}.recovery_s"), meaning, &|run| {
            time_until(run.outage(index, "recovery_s"))
        }));
    }
    let steps = report
        .runs
        .first()
        .map_or(&[][..], |run| &run.figures.steps);
    for (index, step) in steps.iter().enumerate() {
        let at = number(step.at_s);
        let meaning = format!("From the step at {at} s until 90 % of the capacity was used.");
        rows.push(row(format!("steps[{index}].settle_s"), meaning, &|run| {
            time_until(run.step(index, "settle_s"))
        }));
    }
    // Figures that apply to no strategy are left out.
    rows.retain(|row| row.values.iter().any(|value| value != "–"));
    rows
}

/// The time until an event that may never have happened.
fn time_until(seconds: Option<f64>) -> String {
    match seconds {
        Some(_) => format_value(seconds, Unit::Seconds),
        None => "never".to_owned(),
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
