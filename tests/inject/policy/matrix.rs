//! The permission matrix: who may edit Routes, get the Secret, create routes/custom-host, in every
//! combination, and what comes of creating, annotating, changing and removing.

use std::fmt;

use testkit::{Pair, RouteFixture, SecretFixture, eventually, pair};

use crate::{
    policy::{
        guarded::{self, Missing, refusal},
        users::{Answer, Person, Refusal, create_custom_hosts, edit_routes, get_secret},
    },
    scene::{SILENCE, Scene},
};

/// The Secret that the rights are about. A change of the name starts from `earlier-tls`.
const SECRET: &str = "shop-tls";
const EARLIER: &str = "earlier-tls";

#[derive(Clone, Copy)]
struct Rights {
    edit: bool,
    get: bool,
    host: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Action {
    Create,
    Annotate,
    Change,
    Remove,
}

/// Whose key stands in the Route.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Key {
    NoRoute,
    None,
    Earlier,
    TheSecrets,
}

impl Rights {
    fn all() -> impl Iterator<Item = Self> {
        let bit = |number: u8, place: u8| number >> place & 1 == 1;
        (0..8).rev().map(move |number| Self {
            edit: bit(number, 2),
            get: bit(number, 1),
            host: bit(number, 0),
        })
    }

    fn name(self) -> String {
        let letter = |has: bool, letter: &'static str| if has { letter } else { "x" };
        [letter(self.edit, "e"), letter(self.get, "g"), letter(self.host, "h")].concat()
    }

    async fn person(self, scene: &Scene) -> Person {
        let rights = [
            (self.edit, edit_routes()),
            (self.get, get_secret(SECRET)),
            (self.host, create_custom_hosts()),
        ];
        let rules: Vec<_> =
            rights.into_iter().filter(|(has, _)| *has).map(|(_, rule)| rule).collect();
        Person::new(&scene.ns, &self.name(), &rules).await
    }

    fn missing(self) -> Option<Missing> {
        match (self.get, self.host) {
            (true, true) => None,
            (true, false) => Some(Missing::CustomHost),
            (false, true) => Some(Missing::Secret),
            (false, false) => Some(Missing::Both),
        }
    }
}

impl Action {
    const ALL: [Self; 4] = [Self::Create, Self::Annotate, Self::Change, Self::Remove];

    fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Annotate => "annotate",
            Self::Change => "change",
            Self::Remove => "remove",
        }
    }

    /// Makes the Route that an administrator left before the attempt.
    async fn prepare(self, scene: &Scene, route: &str) {
        let plain = RouteFixture::edge(route);
        match self {
            Self::Create => return,
            Self::Annotate => plain.create(&scene.ns).await,
            Self::Change => plain.annotated(EARLIER).create(&scene.ns).await,
            Self::Remove => plain.annotated(SECRET).create(&scene.ns).await,
        };
    }

    fn before(self) -> Key {
        match self {
            Self::Create => Key::NoRoute,
            Self::Annotate => Key::None,
            Self::Change => Key::Earlier,
            Self::Remove => Key::TheSecrets,
        }
    }

    fn after(self) -> Key {
        if self == Self::Remove { Key::None } else { Key::TheSecrets }
    }

    async fn attempt(self, person: &Person, route: &str) -> Answer {
        match self {
            Self::Create => person.create(&RouteFixture::edge(route).annotated(SECRET)).await,
            Self::Annotate | Self::Change => person.annotate(route, Some(SECRET)).await,
            Self::Remove => person.annotate(route, None).await,
        }
    }

    /// The expected result.
    fn expected(self, scene: &Scene, person: &Person, rights: Rights, route: &str) -> Answer {
        if !rights.edit {
            return Err(by_role(scene, person, self, route));
        }
        match rights.missing() {
            Some(missing) if self != Self::Remove => {
                Err(refusal(scene, person, route, SECRET, missing))
            }
            _ => Ok(()),
        }
    }
}

/// The refusal of Kubernetes itself, without any policy.
fn by_role(scene: &Scene, person: &Person, action: Action, route: &str) -> Refusal {
    let (name, verb) = match action {
        Action::Create => (String::new(), "create"),
        _ => (format!(" \"{route}\""), "patch"),
    };
    let (user, namespace) = (&person.user, scene.ns.name());
    let message = format!(
        "routes.route.openshift.io{name} is forbidden: User \"{user}\" cannot {verb} resource \"routes\" \
         in API group \"route.openshift.io\" in the namespace \"{namespace}\""
    );
    Refusal { code: 403, reason: "Forbidden".to_owned(), message }
}

struct Row {
    user: String,
    rights: Rights,
    action: Action,
    route: String,
    answer: Answer,
    expected: Answer,
    key: Key,
}

impl Row {
    fn expected_key(&self) -> Key {
        if self.expected.is_ok() { self.action.after() } else { self.action.before() }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let yes = |has: bool| if has { "yes" } else { "-" };
        let Rights { edit, get, host } = self.rights;
        let (outcome, words) = match &self.answer {
            Ok(()) => ("allowed", ""),
            Err(refusal) => ("refused", short(&refusal.message, &self.user)),
        };
        let (edit, get, host, action) = (yes(edit), yes(get), yes(host), self.action.name());
        let key = match self.key {
            Key::NoRoute => "no Route",
            Key::None => "none",
            Key::Earlier => EARLIER,
            Key::TheSecrets => SECRET,
        };
        write!(f, "{edit:<5}{get:<5}{host:<6}{action:<10}{outcome:<9}{key:<13}{words}")
    }
}

/// The part of a refusal that differs from row to row.
fn short<'a>(message: &'a str, user: &str) -> &'a str {
    let (_, words) = message.split_once(user).unwrap_or(("", message));
    let (words, _) = words.split_once(" in ").unwrap_or((words, ""));
    words.trim_start_matches(['"', ' '])
}

async fn key_in(scene: &Scene, route: &str, earlier: &Pair, the_secrets: &Pair) -> Key {
    if scene.ns.routes().get_opt(route).await.expect("Routes can be read").is_none() {
        return Key::NoRoute;
    }
    let (_, key) = scene.ns.pair_in_route(route).await;
    match key {
        key if key.is_empty() => Key::None,
        key if key == earlier.key => Key::Earlier,
        key if key == the_secrets.key => Key::TheSecrets,
        _ => panic!("Route {route} holds a key that is in no Secret"),
    }
}

#[tokio::test]
async fn no_combination_of_rights_puts_a_key_into_a_route_for_who_could_not_read_it() {
    let scene = guarded::scene("matrix").await;
    let (earlier, the_secrets) = (pair::issued("a.example.com"), pair::issued("b.example.com"));
    SecretFixture::tls(EARLIER, &earlier).create(&scene.ns).await;
    SecretFixture::tls(SECRET, &the_secrets).create(&scene.ns).await;
    let mut rows = Vec::new();
    for rights in Rights::all() {
        let person = rights.person(&scene).await;
        for action in Action::ALL {
            let route = format!("{}-{}", action.name(), rights.name());
            action.prepare(&scene, &route).await;
            wait_for_key(&scene, &route, action.before(), &earlier, &the_secrets).await;
            let answer = action.attempt(&person, &route).await;
            let expected = action.expected(&scene, &person, rights, &route);
            let user = person.user.clone();
            rows.push(Row { user, rights, action, route, answer, expected, key: Key::NoRoute });
        }
    }
    for row in &rows {
        wait_for_key(&scene, &row.route, row.expected_key(), &earlier, &the_secrets).await;
    }
    // All consequences of a refused change have happened by now.
    scene.ns.quiet(SILENCE).await;

    println!("edit get  host  action    answer   key in Route words");
    for row in &mut rows {
        row.key = key_in(&scene, &row.route, &earlier, &the_secrets).await;
        println!("{row}");
    }
    assert_eq!(rows.len(), 32);
    for row in &rows {
        assert_eq!(row.answer, row.expected, "{row}");
        assert_eq!(row.key, row.expected_key(), "{row}");
        let asked = row.action != Action::Remove;
        let all = row.rights.edit && row.rights.get && row.rights.host;
        assert!(!asked || all == (row.key == Key::TheSecrets), "{row}");
    }
    assert_eq!(scene.ns.cluster().audit().forbidden_by_account(), vec![]);
}

/// Waits until the Route holds this key. One that never should is found at the end.
async fn wait_for_key(
    scene: &Scene,
    route: &str,
    expected: Key,
    earlier: &Pair,
    the_secrets: &Pair,
) {
    eventually(crate::scene::PATIENCE, "the key in the Route", async || {
        let key = key_in(scene, route, earlier, the_secrets).await;
        if key == expected { Ok(()) } else { Err((route.to_owned(), key)) }
    })
    .await;
}
