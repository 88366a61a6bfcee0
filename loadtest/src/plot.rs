//! A picture of values, as SVG: a panel a measure, a line of it a row, a colour a series. Nothing of it is measured here.

use std::fmt::Write as _;

/// One value: a dot, a thick line from it, and a thin one of the whole.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mark {
    pub(crate) series: String,
    pub(crate) dot: f64,
    pub(crate) thick: f64,
    pub(crate) thin: [f64; 2],
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) marks: Vec<Mark>,
}

#[derive(Clone, Debug)]
pub(crate) struct Panel {
    pub(crate) title: String,
    pub(crate) logarithmic: bool,
    pub(crate) lines: Vec<Line>,
}

const NAMES: f64 = 330.0;
const WIDTH: f64 = 900.0;
const RIGHT: f64 = WIDTH - 30.0;
/// Of a mark, and between lines.
const MARK: f64 = 10.0;
const GAP: f64 = 6.0;
/// Title, series and scale.
const HEAD: f64 = 60.0;
const COLOURS: [&str; 8] = ["#357", "#c63", "#393", "#a3a", "#888", "#b90", "#099", "#633"];

struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
    ticks: Vec<f64>,
}

impl Scale {
    fn of(panel: &Panel) -> Self {
        let marks = panel.lines.iter().flat_map(|l| &l.marks);
        let values = marks.flat_map(|m| [m.dot, m.thick, m.thin[0], m.thin[1]]);
        let shown = values.filter(|v| v.is_finite() && (*v > 0.0 || !panel.logarithmic));
        let (least, most) = shown.fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(v), b.max(v)));
        let (least, most) = if least > most { (1.0, 1.0) } else { (least, most) };
        if panel.logarithmic {
            // Whole decades around what is there.
            let low = least.log10().floor().clamp(-9.0, 11.0) as i32;
            let high = (most.log10().ceil().clamp(-9.0, 12.0) as i32).max(low + 1);
            return Self {
                low: f64::from(low),
                high: f64::from(high),
                logarithmic: true,
                ticks: (low..=high).map(|decade| 10_f64.powi(decade)).collect(),
            };
        }
        let step = step((most - least).max(most.abs() * 1e-3).max(1e-9) / 5.0);
        let low = (least / step).floor();
        let count = ((most / step).ceil() - low).clamp(1.0, 20.0) as i32;
        Self {
            low: low * step,
            high: (low + f64::from(count)) * step,
            logarithmic: false,
            ticks: (0..=count).map(|i| (low + f64::from(i)) * step).collect(),
        }
    }

    /// None: it has no place.
    fn x(&self, value: f64) -> Option<f64> {
        let value = if self.logarithmic { value.log10() } else { value };
        let part = (value - self.low) / (self.high - self.low);
        value
            .is_finite()
            .then(|| NAMES + part.clamp(0.0, 1.0) * (RIGHT - NAMES))
    }
}

/// 1, 2 or 5 times a power of ten, not below.
fn step(rough: f64) -> f64 {
    let decade = 10_f64.powf(rough.log10().floor());
    let rounds = [1.0, 2.0, 5.0].map(|n| n * decade);
    rounds
        .into_iter()
        .find(|s| *s >= rough * 0.999)
        .unwrap_or(10.0 * decade)
}

fn height(panel: &Panel) -> f64 {
    let lines = panel.lines.iter().map(|l| MARK * l.marks.len() as f64 + GAP);
    HEAD + lines.sum::<f64>() + 24.0
}

pub(crate) fn svg(title: &str, panels: &[Panel]) -> String {
    let whole = 30.0 + panels.iter().map(height).sum::<f64>();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{whole}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text(&mut out, [8.0, 20.0], "font-size=\"15\"", title);
    let mut top = 30.0;
    for panel in panels {
        draw(&mut out, top, panel);
        top += height(panel);
    }
    out + "</svg>\n"
}

fn draw(out: &mut String, top: f64, panel: &Panel) {
    let scale = Scale::of(panel);
    text(out, [8.0, top + 14.0], "font-size=\"13\"", &panel.title);
    let mut series: Vec<&str> = vec![];
    for mark in panel.lines.iter().flat_map(|l| &l.marks) {
        if !series.contains(&&*mark.series) {
            series.push(&mark.series);
        }
    }
    let colour = |name: &str| {
        let at = series.iter().position(|s| *s == name).unwrap_or_default();
        COLOURS[at % COLOURS.len()]
    };
    let mut left = 8.0;
    for name in series.iter().filter(|_| series.len() > 1) {
        text(out, [left, top + 30.0], &format!("fill=\"{}\"", colour(name)), name);
        left += 7.0 * name.chars().count() as f64 + 14.0;
    }
    let (above, bottom) = (top + HEAD - 8.0, top + height(panel) - 24.0);
    for tick in &scale.ticks {
        let Some(x) = scale.x(*tick) else { continue };
        stroke(out, [x, above, x, bottom], "#ccc", 1);
        // 0.30000000000000004 is no mark of a scale.
        let shown = format!("{:.9}", tick);
        let shown = shown.trim_end_matches('0').trim_end_matches('.');
        text(out, [x, above - 3.0], "text-anchor=\"middle\" fill=\"#777\"", shown);
    }
    let mut y = top + HEAD;
    for line in &panel.lines {
        let middle = y + MARK * line.marks.len() as f64 / 2.0 + 4.0;
        text(out, [NAMES - 10.0, middle], "text-anchor=\"end\"", &line.name);
        for mark in &line.marks {
            let (at, colour) = (y + MARK / 2.0, colour(&mark.series));
            for (from, to, width) in [(mark.thin[0], mark.thin[1], 1), (mark.dot, mark.thick, 4)] {
                if let (Some(from), Some(to)) = (scale.x(from), scale.x(to)) {
                    stroke(out, [from, at, to, at], colour, width);
                }
            }
            if let Some(x) = scale.x(mark.dot) {
                // Writing into a String does not fail.
                let _ = writeln!(
                    out,
                    "<circle cx=\"{x:.1}\" cy=\"{at:.1}\" r=\"3.5\" fill=\"{colour}\"/>"
                );
            }
            y += MARK;
        }
        y += GAP;
    }
}

fn stroke(out: &mut String, [x1, y1, x2, y2]: [f64; 4], colour: &str, width: u8) {
    let _ = writeln!(
        out,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\"/>"
    );
}

fn text(out: &mut String, [x, y]: [f64; 2], style: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{words}</text>");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(logarithmic: bool, values: &[[f64; 4]]) -> Panel {
        let mark = |[dot, thick, from, to]: &[f64; 4]| Mark {
            series: format!("{dot}"),
            dot: *dot,
            thick: *thick,
            thin: [*from, *to],
        };
        Panel {
            title: "a < b".into(),
            logarithmic,
            lines: vec![Line {
                name: "x & y".into(),
                marks: values.iter().map(mark).collect(),
            }],
        }
    }

    #[test]
    fn values_stand_where_the_scale_says() {
        let middle = (NAMES + RIGHT) / 2.0;
        // From 0.1 to 10: 1 is in the middle. From 90 to 100: 95 is.
        for (logarithmic, values) in [(true, [1.0, 10.0, 0.1, 10.0]), (false, [95.0, 100.0, 90.0, 100.0])] {
            let svg = svg("t", &[panel(logarithmic, &[values])]);
            assert!(svg.contains("a &lt; b") && svg.contains("x &amp; y"), "{svg}");
            assert!(svg.contains(&format!("<circle cx=\"{middle:.1}\"")), "{svg}");
            let y = 30.0 + HEAD + MARK / 2.0;
            for (from, width) in [(NAMES, 1), (middle, 4)] {
                let line = format!(
                    "x1=\"{from:.1}\" y1=\"{y:.1}\" x2=\"{RIGHT:.1}\" y2=\"{y:.1}\" stroke=\"#357\" stroke-width=\"{width}\""
                );
                assert!(svg.contains(&line), "{line} in {svg}");
            }
        }
    }

    #[test]
    fn each_series_has_a_colour_and_a_name() {
        let svg = svg("t", &[panel(false, &[[1.0; 4], [2.0; 4]])]);
        for (colour, name) in COLOURS.iter().zip(["1", "2"]) {
            assert!(svg.contains(&format!("r=\"3.5\" fill=\"{colour}\"")), "{svg}");
            assert!(svg.contains(&format!("fill=\"{colour}\">{name}</text>")), "{svg}");
        }
    }

    #[test]
    fn nothing_to_draw_is_no_fault() {
        for logarithmic in [true, false] {
            for values in [
                vec![],
                vec![[0.0; 4]],
                vec![[f64::NAN; 4]],
                vec![[f64::INFINITY, -1.0, 0.0, 1e300]],
            ] {
                assert!(svg("t", &[panel(logarithmic, &values)]).ends_with("</svg>\n"));
            }
        }
    }
}
