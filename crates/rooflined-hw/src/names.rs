//! Names of sensors as keys: several may have one name, and clients tell them apart by it.

use std::collections::{HashMap, HashSet};

/// A sensor's name, and where it is: what tells it from others of that name, the same after every boot.
pub(super) struct Named<'a> {
    pub name: &'a str,
    pub place: &'a str,
}

/// What to call each instead, so that no two have one name; `None` for those that keep theirs. Of several the one with the
/// lowest place keeps it, and the others have their place behind it.
pub(super) fn distinguished(all: &[Named<'_>]) -> Vec<Option<String>> {
    let names: HashSet<&str> = all.iter().map(|one| one.name).collect();
    if names.len() == all.len() {
        return vec![None; all.len()];
    }
    // `2` before `10`.
    let rank = |index: usize| (all[index].place.len(), all[index].place, index);
    let mut keeps: HashMap<&str, usize> = HashMap::new();
    for (index, one) in all.iter().enumerate() {
        let first = keeps.entry(one.name).or_insert(index);
        if rank(index) < rank(*first) {
            *first = index;
        }
    }
    let mut given: HashSet<String> = HashSet::new();
    let mut renamed = |index: usize| {
        let Named { name, place } = all[index];
        let wanted = format!("{name}-{place}");
        let further = (2..).map(|number| format!("{wanted}-{number}"));
        let mut free = std::iter::once(wanted.clone()).chain(further);
        let key = free.find(|key| !names.contains(key.as_str()) && !given.contains(key)).unwrap_or(wanted);
        given.insert(key.clone());
        key
    };
    (0..all.len()).map(|index| (keeps.get(all[index].name) != Some(&index)).then(|| renamed(index))).collect()
}

/// Renames those of `all` whose name another has, by the place that `place` makes of index and item.
pub(super) fn distinguish<T>(
    all: &mut [T],
    name: impl Fn(&mut T) -> &mut String,
    place: impl Fn(usize, &T) -> String,
) {
    let names: Vec<String> = all.iter_mut().map(|one| name(one).clone()).collect();
    let places: Vec<String> = all.iter().enumerate().map(|(index, one)| place(index, one)).collect();
    let named: Vec<Named<'_>> =
        names.iter().zip(&places).map(|(name, place)| Named { name, place }).collect();
    for (one, key) in all.iter_mut().zip(distinguished(&named)) {
        if let Some(key) = key {
            *name(one) = key;
        }
    }
}

/// Names that occur before get a number, so that each stands for one thing.
pub(super) fn told_apart(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    for name in names {
        let mut own = name.clone();
        let mut number = 1_u32;
        while told.contains(&own) {
            number += 1;
            own = format!("{name} {number}");
        }
        told.push(own);
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(all: &[(&str, &str)]) -> Vec<String> {
        let named: Vec<Named<'_>> = all.iter().map(|(name, place)| Named { name, place }).collect();
        let renamed = distinguished(&named);
        renamed.into_iter().zip(all).map(|(key, (name, _))| key.unwrap_or_else(|| (*name).into())).collect()
    }

    #[test]
    fn a_name_of_its_own_is_kept_and_of_several_the_lowest_place_keeps_it() {
        assert_eq!(keys(&[("cpu", "0"), ("gpu", "1")]), ["cpu", "gpu"]);
        assert_eq!(
            keys(&[("acpitz", "10"), ("x", "4"), ("acpitz", "9"), ("acpitz", "2")]),
            ["acpitz-10", "x", "acpitz-9", "acpitz"]
        );
        assert!(keys(&[]).is_empty());
    }

    #[test]
    fn the_order_in_which_sensors_are_found_changes_no_name() {
        let one = [("VDD_IN", "1-0041.1"), ("VDD_IN", "1-0040.1"), ("VDD_SOC", "1-0040.3")];
        let mut other = one;
        other.reverse();
        let mut reversed = keys(&other);
        reversed.reverse();
        assert_eq!(keys(&one), ["VDD_IN-1-0041.1", "VDD_IN", "VDD_SOC"]);
        assert_eq!(keys(&one), reversed);
    }

    #[test]
    fn a_name_that_is_made_is_never_that_of_another() {
        let all = [("a", "0"), ("a", "1"), ("a-1", "2"), ("a", "1"), ("a", "1")];
        assert_eq!(keys(&all), ["a", "a-1-2", "a-1", "a-1-3", "a-1-4"]);
    }

    #[test]
    fn every_name_stands_for_one_thing() {
        let names = ["mlx5", "mlx5", "nvme", "mlx5 2", "mlx5"].map(String::from);
        assert_eq!(told_apart(names), ["mlx5", "mlx5 2", "nvme", "mlx5 2 2", "mlx5 3"]);
    }
}
