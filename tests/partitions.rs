//! What fits on a card that can be cut: the tables against packing by hand, and the facts everybody can look up.

use wattlane::partition::{PRODUCTS, Product, Profile, Shape, State};

/// A partition at a place: the rules of MIG, written down a second time.
#[derive(Clone, Copy)]
struct Placed {
    profile: &'static Profile,
    start: u8,
}

fn placements(product: &Product) -> Vec<Placed> {
    let profiles = product.profiles.iter();
    profiles
        .flat_map(|profile| {
            profile
                .starts
                .iter()
                .map(move |start| Placed { profile, start: *start })
        })
        .collect()
}

fn together(product: &Product, placed: &[Placed]) -> bool {
    let range = |p: &Placed| p.start..p.start + p.profile.memory_slices;
    let apart = |a: &Placed, b: &Placed| range(a).end <= b.start || range(b).end <= a.start;
    let compute: u8 = placed.iter().map(|p| p.profile.compute_slices).sum();
    let media = placed.iter().filter(|p| p.profile.name.contains("+me")).count();
    compute <= product.compute_slices
        && media <= 1
        && (0..placed.len()).all(|i| placed[..i].iter().all(|other| apart(other, &placed[i])))
}

/// The most partitions of one profile beside those that are there, by trying every subset of its places.
fn most(product: &Product, there: &[Placed], profile: &str) -> u32 {
    let open: Vec<Placed> = placements(product)
        .into_iter()
        .filter(|p| p.profile.name == profile)
        .collect();
    let subsets = 0_u32..1 << open.len();
    let packed = subsets.filter(|subset| {
        let chosen = open
            .iter()
            .enumerate()
            .filter(|(i, _)| subset >> i & 1 == 1)
            .map(|(_, p)| *p);
        together(product, &there.iter().copied().chain(chosen).collect::<Vec<_>>())
    });
    packed.map(u32::count_ones).max().unwrap_or(0)
}

fn shape(product: &Product) -> Option<Shape> {
    product.shape_key().map(|key| Shape::new(&key))
}

/// The state after this partition.
fn after(product: &Product, shape: &Shape, state: State, placed: Placed) -> Option<State> {
    let slices = 0..product.memory_slices;
    let taken = |i: u8| u32::from((placed.start..placed.start + placed.profile.memory_slices).contains(&i));
    let media = u32::from(placed.profile.name.contains("+me"));
    let rest = [u32::from(placed.profile.compute_slices), media];
    let draws: Vec<u32> = slices.map(taken).chain(rest).collect();
    shape.after(state, shape.cut(&placed.profile.name.into(), &draws)?)
}

fn fits(shape: &Shape, state: State, profile: &str) -> u32 {
    let at = shape.profiles().iter().position(|p| &**p == profile);
    at.map_or(0, |at| u32::from(shape.fits(state)[at]))
}

fn product(id: &str) -> &'static Product {
    PRODUCTS.iter().find(|p| p.id == id).expect("a product of the table")
}

#[test]
fn every_product_holds_what_its_maker_says_and_what_packing_by_hand_finds() {
    let mut seen = 0;
    for product in PRODUCTS {
        let Some(shape) = shape(product) else { continue };
        seen += 1;
        for profile in product.profiles {
            let alone = fits(&shape, shape.empty(), profile.name);
            assert_eq!(alone, u32::from(profile.most), "{} {}", product.id, profile.name);
            assert_eq!(
                alone,
                most(product, &[], profile.name),
                "{} {}",
                product.id,
                profile.name
            );
        }
    }
    assert!(seen >= 12, "{seen} products have known starts");
}

#[test]
fn beside_any_partition_and_any_pair_fits_what_packing_by_hand_finds() {
    for product in PRODUCTS {
        let Some(shape) = shape(product) else { continue };
        let all = placements(product);
        for first in &all {
            let one = after(product, &shape, shape.empty(), *first).expect("an empty card takes one");
            for profile in product.profiles {
                let found = fits(&shape, one, profile.name);
                assert_eq!(
                    found,
                    most(product, &[*first], profile.name),
                    "{}: {} beside {} at {}",
                    product.id,
                    profile.name,
                    first.profile.name,
                    first.start
                );
            }
            for second in &all {
                let pair = [*first, *second];
                let two = after(product, &shape, one, *second);
                assert_eq!(
                    two.is_some(),
                    together(product, &pair),
                    "{}: {} at {} and {} at {}",
                    product.id,
                    first.profile.name,
                    first.start,
                    second.profile.name,
                    second.start
                );
                let Some(two) = two else { continue };
                for profile in product.profiles.iter().filter(|p| p.compute_slices <= 2) {
                    let found = fits(&shape, two, profile.name);
                    assert_eq!(
                        found,
                        most(product, &pair, profile.name),
                        "{} {}",
                        product.id,
                        profile.name
                    );
                }
            }
        }
    }
}

/// Eight H100, one of which holds a 3g.40gb: allocated and remaining together.
#[test]
fn where_a_3g_belongs_on_an_empty_card() {
    let h100 = product("h100-80gb");
    let shape = shape(h100).expect("known");
    let names = ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"];
    let with = |start| {
        let placed = Placed {
            profile: h100.profile("3g.40gb").expect("known"),
            start,
        };
        let state = after(h100, &shape, shape.empty(), placed).expect("fits");
        names.map(|n| 7 * fits(&shape, shape.empty(), n) + fits(&shape, state, n) + u32::from(n == "3g.40gb"))
    };
    let empty = names.map(|n| 8 * fits(&shape, shape.empty(), n));
    assert_eq!(empty, [56, 32, 24, 16, 8, 8]);
    assert_eq!(with(0), [52, 30, 22, 16, 7, 7]);
    assert_eq!(with(4), [53, 30, 23, 16, 8, 7]);
    let worth = |start| {
        let placed = Placed {
            profile: h100.profile("3g.40gb").expect("known"),
            start,
        };
        shape.worth(after(h100, &shape, shape.empty(), placed).expect("fits"), &[])
    };
    assert!(worth(4) > worth(0), "the far end keeps the 4g");
}
