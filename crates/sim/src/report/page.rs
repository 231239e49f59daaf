//! The page around the plots.

use super::clients;
use super::phases;
use super::plots::{self, Figure, Frame};
use super::states;
use super::table::{self, format_value};
use super::{Report, StrategyRun, bins};
use crate::measure::Unit;
use crate::plot::{Colour, draw, escape, number};

/// The page, which is also well-formed XML: every element is closed.
pub(super) fn page(report: &Report<'_>) -> String {
    let name = escape(report.name);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>Simulation of {name}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         {}{}{}{}{}</main>\n</body>\n</html>\n",
        heading(report),
        overview(report),
        runs(report),
        figures(report),
        repeat(report),
    )
}

const STYLE: &str = include_str!("style.css");

fn heading(report: &Report<'_>) -> String {
    let duration = number(report.duration.as_secs_f64());
    let mut html = format!(
        "<header>\n<h1>Simulation of {}</h1>\n<p class=\"about\">{}{duration} s of virtual \
         time, seed {}.</p>\n<ul class=\"results\">\n",
        escape(report.name),
        about(report.about),
        report.seed
    );
    for run in &report.runs {
        html += &format!("<li>{}</li>\n", result(run));
    }
    html += "</ul>\n</header>\n";
    html
}

/// A phrase as a sentence; nothing for an empty one.
fn about(about: &str) -> String {
    let mut letters = about.chars();
    match letters.next() {
        Some(first) => format!(
            "{}{}. ",
            escape(&first.to_uppercase().to_string()),
            escape(letters.as_str())
        ),
        None => String::new(),
    }
}

/// The result of a strategy in a sentence.
fn result(run: &StrategyRun) -> String {
    let figures = &run.figures;
    let used = match figures.goodput_ratio {
        Some(_) => format!(
            "<b>{}</b> of the capacity was used",
            escape(&format_value(figures.goodput_ratio, Unit::Share))
        ),
        None => "the upstream had no capacity".to_owned(),
    };
    let refused = match figures.refused_ratio {
        Some(_) => format!(
            "<b>{}</b> of the requests were refused",
            escape(&format_value(figures.refused_ratio, Unit::Share))
        ),
        None => "no requests were sent".to_owned(),
    };
    format!("<b>{}</b>: {used}, {refused}.", escape(&run.strategy))
}

/// Several strategies side by side, on one scale.
fn overview(report: &Report<'_>) -> String {
    if report.runs.len() < 2 {
        return String::new();
    }
    let frame = frame(report, &report.runs);
    let runs = report.runs.iter();
    let max = runs.map(|run| plots::max_accepted(run, frame));
    let max = max.fold(0.0, f64::max);
    let mut html = format!(
        "<section>\n<h2>Side by side</h2>\n<p class=\"caption\">Accepted requests{}, and the \
         upstream's capacity. All on one scale.</p>\n<div class=\"multiples\">\n",
        frame.mean_over()
    );
    for run in &report.runs {
        html += &format!(
            "<figure>\n<h3>{}</h3>\n{}</figure>\n",
            escape(&run.strategy),
            draw(&plots::overview(run, frame, max))
        );
    }
    html += "</div>\n</section>\n";
    html
}

fn runs(report: &Report<'_>) -> String {
    let runs = report.runs.iter();
    runs.map(|run| section(run, frame(report, std::slice::from_ref(run))))
        .collect()
}

fn section(run: &StrategyRun, frame: Frame) -> String {
    let mut html = format!("<section>\n<h2>{}</h2>\n", escape(&run.strategy));
    html += &explanations(run);
    html += &figure(&plots::rate(run, frame), &[]);
    if let Some(phases) = phases::phases(run, frame) {
        html += &figure(&phases, &phases::LEGEND);
    }
    html += &figure(&plots::responses(run, frame), &[]);
    html += &match plots::latency(run, frame) {
        Some(latency) => figure(&latency, &[]),
        None => absent("Latency", "No request was accepted."),
    };
    html += &match states::states(run, frame) {
        Some(states) => figure(&states, &states::legend(run)),
        None => absent("Holds and breakers", "No holds, and no breaker opened."),
    };
    if let Some(shares) = clients::shares(run, frame) {
        html += &figure(&shares, &[]);
    }
    html += "</section>\n";
    html
}

/// What each client does at the end, in a sentence.
fn explanations(run: &StrategyRun) -> String {
    let explanations = &run.figures.explanations;
    let shown = explanations.iter().take(clients::MAX_CLIENTS).enumerate();
    let items = shown.filter_map(|(index, explanation)| {
        let explanation = escape(explanation.as_ref()?);
        Some(match explanations.len() {
            1 => format!("<li>At the end: {explanation}.</li>\n"),
            _ => format!(
                "<li>{} at the end: {explanation}.</li>\n",
                clients::name(index)
            ),
        })
    });
    match items.collect::<String>() {
        items if items.is_empty() => items,
        items => format!("<ul class=\"explanations\">\n{items}</ul>\n"),
    }
}

fn figure(figure: &Figure, legend: &[(Colour, &str)]) -> String {
    let Figure {
        heading,
        caption,
        plot,
    } = figure;
    // Narrow screens scroll a plot instead of shrinking its text.
    format!(
        "<figure>\n<h3>{}</h3>\n<p class=\"caption\">{}</p>\n{}<div class=\"scroll\">\n{}</div>\n\
         </figure>\n",
        escape(heading),
        escape(caption),
        legend_html(legend),
        draw(plot)
    )
}

fn legend_html(legend: &[(Colour, &str)]) -> String {
    if legend.is_empty() {
        return String::new();
    }
    let items = legend.iter().map(|(colour, word)| {
        let colour = colour.variable();
        format!("<li><span class=\"swatch\" style=\"background: {colour}\"></span>{word}</li>")
    });
    format!("<ul class=\"legend\">{}</ul>\n", items.collect::<String>())
}

/// Text in place of an empty plot.
fn absent(heading: &str, text: &str) -> String {
    format!("<h3>{heading}</h3>\n<p class=\"caption\">{text}</p>\n")
}

fn figures(report: &Report<'_>) -> String {
    format!(
        "<section>\n<h2>Figures</h2>\n<div class=\"scroll\">\n{}</div>\n</section>\n",
        table::table(report)
    )
}

fn repeat(report: &Report<'_>) -> String {
    format!(
        "<section>\n<h2>Repeat</h2>\n<p class=\"caption\">The same scenario with the same seed \
         always gives the same result.</p>\n<pre>{}</pre>\n</section>\n\
         <section>\n<h2>Scenario</h2>\n<pre>{}</pre>\n</section>\n",
        escape(report.command),
        escape(report.text)
    )
}

/// The frame for plots of these runs, with bins that suit all of them.
fn frame(report: &Report<'_>, runs: &[StrategyRun]) -> Frame {
    let end_s = report.duration.as_secs_f64();
    Frame {
        end_s,
        bin_s: bins::width_s(runs, end_s),
    }
}
