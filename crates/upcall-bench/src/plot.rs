//! A plot of the results, as SVG: delays on a logarithmic scale, losses beside them, and the means of the
//! ports.

use std::fmt::Write as _;

use crate::model::{Measurement, Run, lost};

const WIDTH: f64 = 1200.0;
const MARGIN: f64 = 20.0;
/// Start and maximum length of bars.
const BARS_AT: f64 = 240.0;
const BAR_LONGEST: f64 = 640.0;
const BAR_HEIGHT: f64 = 16.0;
const LINE: f64 = 24.0;
const PORTS_HEIGHT: f64 = 260.0;
/// Maximum characters of a name beside a bar.
const NAME_MAX: usize = 28;
/// Maximum points drawn for the ports of one run.
const POINTS_MAX: usize = 2500;
/// Colours suitable for colour blindness (Okabe and Ito), by run.
const COLOURS: [&str; 7] = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#999999"];

fn escaped(text: &str) -> String {
    let printable = |c: &char| !c.is_control();
    let text: String = text.chars().filter(printable).take(120).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, words: &str) {
    // Writing to a string cannot fail, here and below.
    let _infallible =
        writeln!(out, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#, escaped(words));
}

fn line(out: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64), colour: &str) {
    let _infallible = writeln!(
        out,
        r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{colour}" stroke-width="1.5"/>"#
    );
}

/// A logarithmic scale from `least` to `most` ns.
struct Scale {
    least: f64,
    most: f64,
}

impl Scale {
    /// Whole decades that include all of these; `None` if empty.
    fn around(values: impl Iterator<Item = f64> + Clone) -> Option<Scale> {
        let values = values.filter(|v| *v > 0.0);
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(0.0, f64::max);
        if !least.is_finite() {
            return None;
        }
        let decade = |ns: f64| 10_f64.powf(ns.log10().floor());
        Some(Scale { least: decade(least), most: decade(most) * 10.0 })
    }

    /// From 0 to 1.
    fn part(&self, ns: f64) -> f64 {
        let of = |ns: f64| ns.max(self.least).log10();
        ((of(ns) - of(self.least)) / (of(self.most) - of(self.least))).clamp(0.0, 1.0)
    }

    fn decades(&self) -> impl Iterator<Item = f64> + '_ {
        std::iter::successors(Some(self.least), |ns| Some(ns * 10.0)).take_while(|ns| *ns <= self.most * 1.01)
    }
}

fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.1} s", ns / 1e9),
    }
}

type Take = fn(&Run) -> Option<&Measurement>;

/// The measurements that are drawn as bars, one group each.
const GROUPS: [(&str, Take); 4] = [
    ("One port", |run| run.one.as_ref()),
    ("Loaded port", |run| run.load.as_ref()),
    ("Idle port, no load", |run| run.idle.as_ref().map(|idle| &idle.unloaded)),
    ("Idle port, all others loaded", |run| run.idle.as_ref()?.loaded.as_ref()),
];

/// The plot of several runs: the bar is the median, the line reaches from the least to the 99th percentile.
pub fn picture(runs: &[&Run]) -> String {
    let measured = || runs.iter().flat_map(|run| GROUPS.iter().filter_map(|(_, take)| take(run)));
    let scale = Scale::around(measured().flat_map(|m| [m.delays.min_ns, m.delays.p99_ns]));
    let mut out = String::new();
    let mut y = MARGIN;
    if let Some(scale) = &scale {
        y += LINE;
        let what = "Delay of first packets (bar: median; line: least to 99th percentile), and loss";
        text(&mut out, (MARGIN, y), "start", what);
        for (title, take) in GROUPS {
            if runs.iter().any(|run| take(run).is_some()) {
                group(&mut out, &mut y, (title, take), runs, scale);
            }
        }
        y += LINE * 1.5;
        for decade in scale.decades() {
            let x = BARS_AT + scale.part(decade) * BAR_LONGEST;
            line(&mut out, (x, y - LINE), (x, y - LINE + 6.0), "black");
            text(&mut out, (x, y), "middle", &time(decade));
        }
    }
    ports(&mut out, &mut y, runs);
    let height = y + MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {WIDTH} {height:.0}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{out}</svg>\n"
    )
}

fn group(out: &mut String, y: &mut f64, (title, take): (&str, Take), runs: &[&Run], scale: &Scale) {
    *y += LINE * 1.5;
    text(out, (MARGIN, *y), "start", title);
    for (at, run) in runs.iter().enumerate() {
        let Some(measured) = take(run) else { continue };
        *y += LINE;
        let colour = COLOURS[at % COLOURS.len()];
        let name: String = run.name.chars().take(NAME_MAX).collect();
        text(out, (BARS_AT - 8.0, *y), "end", &name);
        let loss = format!("{:.2} % lost", measured.loss() * 100.0);
        text(out, (BARS_AT + BAR_LONGEST + 110.0, *y), "start", &loss);
        if measured.delays.count == 0 {
            text(out, (BARS_AT, *y), "start", "none arrived");
            continue;
        }
        let (top, length) = (*y - BAR_HEIGHT + 4.0, |ns: f64| scale.part(ns) * BAR_LONGEST);
        let width = length(measured.delays.p50_ns);
        let _infallible = writeln!(
            out,
            r#"<rect x="{BARS_AT}" y="{top:.1}" width="{width:.1}" height="{BAR_HEIGHT}" fill="{colour}"/>"#
        );
        let middle = top + BAR_HEIGHT / 2.0;
        let ends = [measured.delays.min_ns, measured.delays.p99_ns].map(|ns| BARS_AT + length(ns));
        line(out, (ends[0], middle), (ends[1], middle), "black");
        for x in ends {
            line(out, (x, middle - 4.0), (x, middle + 4.0), "black");
        }
        text(out, (BARS_AT + BAR_LONGEST + 10.0, *y), "start", &time(measured.delays.p50_ns));
    }
}

/// The mean of each port, a point each.
fn ports(out: &mut String, y: &mut f64, runs: &[&Run]) {
    let rows = || runs.iter().flat_map(|run| run.all.iter().flatten()).filter(|row| row.arrived > 0);
    let most = rows().map(|row| row.avg_ns).fold(0.0, f64::max);
    let last = rows().map(|row| row.port).max().unwrap_or(0).max(1) as f64;
    if most <= 0.0 {
        return;
    }
    *y += LINE * 2.0;
    text(out, (MARGIN, *y), "start", "Mean delay of each port, in turn");
    let (left, right, top, bottom) = (100.0, WIDTH - 40.0, *y + LINE, *y + PORTS_HEIGHT);
    line(out, (left, bottom), (right, bottom), "black");
    line(out, (left, top), (left, bottom), "black");
    for quarter in 0..=4 {
        let value = most * f64::from(quarter) / 4.0;
        let at = bottom - value / most * (bottom - top);
        line(out, (left - 5.0, at), (left, at), "black");
        text(out, (left - 8.0, at + 4.0), "end", &time(value));
    }
    for (at, run) in runs.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        for row in run.all.iter().flatten().filter(|row| row.arrived > 0).take(POINTS_MAX) {
            let x = left + row.port as f64 / last * (right - left);
            let at = bottom - row.avg_ns / most * (bottom - top);
            let _infallible = writeln!(out, r#"<circle cx="{x:.1}" cy="{at:.1}" r="2" fill="{colour}"/>"#);
        }
        if run.all.as_ref().is_some_and(|rows| !rows.is_empty()) {
            let lost_all = run.all.iter().flatten().fold((0, 0), |(s, a), r| (s + r.sent, a + r.arrived));
            let share = lost(lost_all.0, lost_all.1) * 100.0;
            let name: String = run.name.chars().take(NAME_MAX / 2).collect();
            let words = format!("{name}: {share:.2} % lost");
            let x = left + 20.0 + at as f64 * 220.0;
            let _infallible = writeln!(
                out,
                r#"<rect x="{x:.1}" y="{:.1}" width="10" height="10" fill="{colour}"/>"#,
                bottom + 14.0
            );
            text(out, (x + 16.0, bottom + 24.0), "start", &words);
        }
    }
    *y = bottom + LINE * 1.5;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::tests::sample;

    #[test]
    fn a_bar_for_each_measurement_and_a_point_for_each_port() {
        let (a, b) = (sample("a <new>", 1.0), sample("b", 30.0));
        let svg = picture(&[&a, &b]);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        // The page, 4 bars and the legend of each of both runs.
        assert_eq!(svg.matches("<rect").count(), 1 + 2 * 4 + 2);
        assert_eq!(svg.matches("<circle").count(), 4);
        assert!(svg.contains("percentile), and loss"));
        assert!(svg.contains("a &lt;new&gt;") && svg.contains("1.00 % lost") && !svg.contains("NaN"));
    }

    #[test]
    fn longer_delays_have_longer_bars() {
        let scale = Scale::around([5e3, 2e6].into_iter()).unwrap();
        assert_eq!((scale.least, scale.most), (1e3, 1e7));
        assert!(scale.part(5e3) < scale.part(6e3) && (scale.part(1e5) - 0.5).abs() < 1e-9);
        assert_eq!((scale.part(0.0), scale.part(1e12)), (0.0, 1.0));
    }

    #[test]
    fn without_results_there_is_an_empty_page() {
        let svg = picture(&[&Run::default()]);
        assert!(!svg.contains("<circle") && !svg.contains("NaN") && !svg.contains("inf"));
    }
}
