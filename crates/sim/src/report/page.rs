//! The page around the plots: what was simulated, what came of it, how to repeat it.

use super::canvas::{Plot, draw};
use super::clients;
use super::colour::Paint;
use super::markup::escape;
use super::plots::{self, Figure, Frame};
use super::scale::number;
use super::states;
use super::table::{self, Unit, shown};
use super::{Report, StrategyRun, bins};

/// The whole page. Every element is closed, so that it can be read as XML too.
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

/// A phrase made a sentence, or nothing.
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

/// What came of a strategy, in a sentence.
fn result(run: &StrategyRun) -> String {
    let figures = &run.figures;
    let reached = match figures.goodput_ratio {
        Some(_) => format!(
            "<b>{}</b> of what was possible was accepted",
            escape(&shown(figures.goodput_ratio, Unit::Share))
        ),
        None => "nothing could be accepted".to_owned(),
    };
    let refused = match figures.refused_ratio {
        Some(_) => format!(
            "<b>{}</b> of what was sent was refused",
            escape(&shown(figures.refused_ratio, Unit::Share))
        ),
        None => "nothing was sent".to_owned(),
    };
    format!("<b>{}</b>: {reached}, {refused}.", escape(&run.strategy))
}

/// Several strategies next to each other, all on one scale.
fn overview(report: &Report<'_>) -> String {
    if report.runs.len() < 2 {
        return String::new();
    }
    let frame = frame(report, &report.runs);
    let most = report.runs.iter();
    let most = most.map(|run| plots::most_accepted(run, frame));
    let most = most.fold(0.0, f64::max);
    let mut html = format!(
        "<section>\n<h2>Side by side</h2>\n<p class=\"caption\">What was accepted{}, and what the \
         upstream could take. All on one scale.</p>\n<div class=\"multiples\">\n",
        frame.mean_over()
    );
    for run in &report.runs {
        html += &format!(
            "<figure>\n<h3>{}</h3>\n{}</figure>\n",
            escape(&run.strategy),
            draw(&plots::overview(run, frame, most))
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
    html += &figure(&plots::rate(run, frame), &[]);
    html += &figure(&plots::answers(run, frame), &[]);
    html += &match plots::latency(run, frame) {
        Some(latency) => figure(&latency, &[]),
        None => absent("Latency", "Nothing was accepted, so there is none."),
    };
    html += &match states::states(run, frame) {
        Some(states) => figure(&states, &states::legend(run)),
        None => absent(
            "Holds and breakers",
            "Nobody was ever held, and no breaker opened.",
        ),
    };
    if let Some(shares) = clients::shares(run, frame) {
        html += &figure(&shares, &[]);
    }
    html += "</section>\n";
    html
}

fn figure(figure: &Figure, legend: &[(Paint, &str)]) -> String {
    let Figure {
        heading,
        caption,
        plot,
    } = figure;
    format!(
        "<figure>\n<h3>{}</h3>\n<p class=\"caption\">{}</p>\n{}{}</figure>\n",
        escape(heading),
        escape(caption),
        legend_html(legend),
        drawing(plot)
    )
}

/// Narrow screens scroll a plot instead of shrinking its words.
fn drawing(plot: &Plot) -> String {
    format!("<div class=\"scroll\">\n{}</div>\n", draw(plot))
}

fn legend_html(legend: &[(Paint, &str)]) -> String {
    if legend.is_empty() {
        return String::new();
    }
    let items = legend.iter().map(|(paint, word)| {
        let colour = paint.variable();
        format!("<li><span class=\"swatch\" style=\"background: {colour}\"></span>{word}</li>")
    });
    format!("<ul class=\"legend\">{}</ul>\n", items.collect::<String>())
}

/// Words in place of an empty plot.
fn absent(heading: &str, words: &str) -> String {
    format!("<h3>{heading}</h3>\n<p class=\"caption\">{words}</p>\n")
}

fn figures(report: &Report<'_>) -> String {
    format!(
        "<section>\n<h2>Figures</h2>\n<div class=\"scroll\">\n{}</div>\n</section>\n",
        table::table(report)
    )
}

fn repeat(report: &Report<'_>) -> String {
    format!(
        "<section>\n<h2>Again</h2>\n<p class=\"caption\">The same scenario with the same seed \
         always comes to the same.</p>\n<pre>{}</pre>\n</section>\n\
         <section>\n<h2>Scenario</h2>\n<pre>{}</pre>\n</section>\n",
        escape(report.command),
        escape(report.text)
    )
}

/// The frame for plots of these runs: alone, each has bins that suit it; side by side, all have the
/// same.
fn frame(report: &Report<'_>, runs: &[StrategyRun]) -> Frame {
    let end_s = report.duration.as_secs_f64();
    Frame {
        end_s,
        bin_s: bins::width_s(runs, end_s),
    }
}
