//! The connection string of the server's database.
//!
//! Drivers do more than connect: MySQL's sends any file that the other side asks for (`allowAllFiles`),
//! PostgreSQL's reads the files of `sslkey` and `passfile`, SQLite's opens any path. So only few options are
//! allowed.

use super::{Problem, pattern::pattern};
use crate::api::spire_server::Datastore;

pattern!(SQLITE, r"^/run/spire/data/[A-Za-z0-9_-][A-Za-z0-9._-]*\.(sqlite3|sqlite|db)$");
pattern!(
    /// The driver looks for the last slash, then for the last `@` before it: everything before that is user
    /// and password.
    MYSQL,
    r"^(.*@)?tcp\(([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?\)/[A-Za-z0-9_$-]+\?((parseTime=true|rejectReadOnly=(true|false)|(charset|collation)=[A-Za-z0-9_,]+|tls=(true|false|skip-verify|preferred)|(timeout|readTimeout|writeTimeout)=[0-9]{1,6}(ms|s|m)|maxAllowedPacket=[0-9]{1,10})(&|$))+$"
);
pattern!(
    /// SPIRE does not start without it.
    MYSQL_TIMES,
    r"[?&]parseTime=true(&|$)"
);
pattern!(
    /// Any space, also beyond ASCII, ends a value that is not quoted.
    POSTGRES_WORDS,
    r"^((host=[A-Za-z0-9.:-]+|port=[0-9]{1,5}|sslmode=(disable|require|verify-ca|verify-full)|connect_timeout=[0-9]{1,6}|(user|password|dbname|application_name)=([!-&(-\[\]-~]+|'([^'\\\n]|\\.)*'))( +|$))+$"
);
pattern!(
    /// The driver converts it to words, older ones without quotes: hence no escaped spaces.
    POSTGRES_URL,
    r"^postgres(ql)?://(([A-Za-z0-9._~!$*+,;=-]|%(2[1-9A-Fa-f]|[3-6][0-9A-Fa-f]|7[0-9A-Ea-e]))+(:([A-Za-z0-9._~!$*+,;=-]|%(2[1-9A-Fa-f]|[3-6][0-9A-Fa-f]|7[0-9A-Ea-e]))*)?@)?([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9_$-]+)?(\?((sslmode=(disable|require|verify-ca|verify-full)|connect_timeout=[0-9]{1,6}|application_name=([A-Za-z0-9._~!$*+,;=-]|%(2[1-9A-Fa-f]|[3-6][0-9A-Fa-f]|7[0-9A-Ea-e]))+)(&|$))+)?$"
);

pub const SQLITE_SAYS: &str = "for sqlite3 write a file of the server's volume that ends in .sqlite3 or .db, such as \
     /run/spire/data/datastore.sqlite3: no other folder, no file:, no options";
pub const MYSQL_SAYS: &str = "for mysql write USER:PASSWORD@tcp(HOST:3306)/DATABASE?parseTime=true, and of other options \
     only charset, collation, tls, timeout, readTimeout, writeTimeout, maxAllowedPacket and \
     rejectReadOnly";
pub const POSTGRES_SAYS: &str = "for postgres write host=HOST user=USER password=PASSWORD dbname=DATABASE or \
     postgres://USER:PASSWORD@HOST/DATABASE, and of other options only port, sslmode, \
     connect_timeout and application_name; certificates come from tlsSecretName";

/// With a single connection the server waits for itself for ever.
const LEAST_CONNECTIONS: i32 = 2;

pub fn problems(datastore: &Datastore) -> impl Iterator<Item = Problem> {
    let too_few = (datastore.max_open_conns < LEAST_CONNECTIONS).then(|| {
        let why = "write 2 or more: with one connection the server waits for itself";
        Problem::new("spec.datastore.maxOpenConns", why)
    });
    connection_problem(datastore).into_iter().chain(too_few)
}

/// It may contain a password, so it is not quoted.
fn connection_problem(datastore: &Datastore) -> Option<Problem> {
    let text = datastore.connection_string.expose();
    let (accepted, says) = match &*datastore.database_type {
        "sqlite3" => (SQLITE.accepts(text), SQLITE_SAYS),
        "mysql" => (MYSQL.accepts(text) && MYSQL_TIMES.accepts(text), MYSQL_SAYS),
        "postgres" => (POSTGRES_WORDS.accepts(text) || POSTGRES_URL.accepts(text), POSTGRES_SAYS),
        _ => {
            let why = "write sqlite3, mysql or postgres";
            return Some(Problem::new("spec.datastore.databaseType", why));
        }
    };
    (!accepted).then(|| Problem::new("spec.datastore.connectionString", says))
}
