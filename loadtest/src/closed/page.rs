//! A page of Prometheus counters: one number a series, and what came between two pages.

use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(crate) struct Page(BTreeMap<String, f64>);

impl Page {
    pub(crate) fn read(page: &str) -> Self {
        let series = page.lines().filter(|line| !line.starts_with('#'));
        let parsed = series.filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self(parsed.collect())
    }

    /// What came since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let new = self.0.iter().map(|(name, now)| {
            let then = before.0.get(name).copied().unwrap_or(0.0);
            (name.clone(), now - then)
        });
        Self(new.collect())
    }

    /// Series of a name that carry the text among their labels.
    fn of<'a>(&'a self, name: &'a str, label: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        self.0.iter().filter_map(move |(series, value)| {
            let labels = series.strip_prefix(name)?;
            let whole = labels.is_empty() || labels.starts_with('{');
            (whole && labels.contains(label)).then_some((labels, *value))
        })
    }

    fn sum(&self, name: &str, label: &str) -> f64 {
        self.of(name, label).map(|(_, value)| value).sum()
    }

    /// Of a counter without labels.
    pub(crate) fn count(&self, name: &str) -> f64 {
        self.sum(name, "")
    }

    /// Mean of a histogram over the series that carry the label; 0 where there is nothing.
    pub(crate) fn mean(&self, name: &str, label: &str) -> f64 {
        let count = self.sum(&format!("{name}_count"), label);
        if count > 0.0 {
            self.sum(&format!("{name}_sum"), label) / count
        } else {
            0.0
        }
    }

    /// Means of a histogram in ms, by the value of a label.
    pub(crate) fn means(&self, name: &str, key: &str) -> BTreeMap<String, f64> {
        let count = format!("{name}_count");
        let with = self.of(&count, key).filter(|(_, n)| *n > 0.0);
        with.filter_map(|(labels, _)| value(labels, key))
            .map(|value| (value.to_owned(), self.mean(name, &format!("{key}=\"{value}\"")) * 1e3))
            .collect()
    }

    /// Counters that moved, by the value of a label.
    pub(crate) fn counts(&self, name: &str, key: &str) -> BTreeMap<String, f64> {
        let mut counts = BTreeMap::new();
        for (labels, n) in self.of(name, key).filter(|(_, n)| *n > 0.0) {
            if let Some(value) = value(labels, key) {
                *counts.entry(value.to_owned()).or_default() += n;
            }
        }
        counts
    }
}

fn value<'a>(labels: &'a str, key: &str) -> Option<&'a str> {
    labels.split(&format!("{key}=\"")).nth(1)?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::Page;

    const PAGE: &str =
        "# HELP x y\nx_sum{a=\"1\",b=\"2\"} 4\nx_count{a=\"1\",b=\"2\"} 2\nx_sum{a=\"2\"} 1\nx_count{a=\"2\"} 1\nn 7\n";

    #[test]
    fn a_page_is_read_by_labels() {
        let page = Page::read(PAGE);
        assert_eq!(
            page.means("x", "a"),
            [("1".into(), 2000.0), ("2".into(), 1000.0)].into()
        );
        assert!((page.mean("x", "") - 5.0 / 3.0).abs() < 1e-9);
        assert_eq!(page.counts("x_count", "b"), [("2".into(), 2.0)].into());
        let later = Page::read(&PAGE.replace("n 7", "n 9")).since(&page);
        assert_eq!((later.count("n"), later.mean("x", "")), (2.0, 0.0));
    }
}
