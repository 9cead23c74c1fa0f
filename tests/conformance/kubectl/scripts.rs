//! Typical uses of kubectl.

use super::run::Script;

pub fn all() -> Vec<Script> {
    vec![
        reading(),
        writing(),
        applying(),
        patching(),
        deleting(),
        waiting(),
        describing(),
        watching(),
        exploring(),
        issuing_tokens(),
    ]
}

/// The kinds of the product, labelled so that they can be found among those of other scripts.
fn objects(namespace: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Secret
metadata: {{name: plain, namespace: {namespace}, labels: {{script: {namespace}, app: web}}}}
stringData: {{a: x, b: yy}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: one, namespace: {namespace}, labels: {{script: {namespace}, app: web}}}}
data: {{a: x, b: 'two words', c: \"three\\nlines\"}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: two, namespace: {namespace}, labels: {{script: {namespace}, app: db}}, annotations: {{note: here}}}}
---
apiVersion: route.openshift.io/v1
kind: Route
metadata: {{name: shop, namespace: {namespace}, labels: {{script: {namespace}, app: web}}}}
spec: {{host: shop.example.com, path: /p, to: {{name: shop}}, tls: {{termination: edge}}}}
---
apiVersion: route.openshift.io/v1
kind: Route
metadata: {{name: plain, namespace: {namespace}, labels: {{script: {namespace}}}}}
spec: {{host: plain.example.com, to: {{kind: Service, name: plain, weight: 3}}, port: {{targetPort: 8080}}}}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {{name: leader, namespace: {namespace}}}
spec: {{holderIdentity: one, leaseDurationSeconds: 15, renewTime: '2026-01-02T03:04:05.678901Z'}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: robot, namespace: {namespace}}}
---
apiVersion: events.k8s.io/v1
kind: Event
metadata: {{name: shop.1, namespace: {namespace}}}
regarding: {{apiVersion: route.openshift.io/v1, kind: Route, name: shop, namespace: {namespace}}}
reason: SecretNotFound
action: Inject
type: Warning
note: Secret shop-tls was not found
eventTime: '2026-01-02T03:04:05.678901Z'
reportingController: trustplane.dev/injector
reportingInstance: injector-1
---
apiVersion: v1
kind: Event
metadata: {{name: one.1, namespace: {namespace}}}
involvedObject: {{apiVersion: v1, kind: ConfigMap, name: one, namespace: {namespace}}}
reason: Seen
type: Normal
message: It was seen
count: 3
firstTimestamp: '2026-01-02T03:04:05Z'
lastTimestamp: '2026-01-02T03:05:05Z'
source: {{component: somebody}}
"
    )
}

fn reading() -> Script {
    Script {
        name: "reading",
        files: vec![("objects.yaml", objects("kubectl-get"))],
        lines: "
            create namespace kubectl-get
            create -f objects.yaml
            ! create -f objects.yaml
            -n kubectl-get get secrets
            -n kubectl-get get secret plain -o wide
            -n kubectl-get get secret plain -o yaml
            -n kubectl-get get cm
            -n kubectl-get get cm one two -o wide
            -n kubectl-get get configmaps -o yaml
            -n kubectl-get get cm/one -o json
            -n kubectl-get get routes
            -n kubectl-get get routes -o wide
            -n kubectl-get get route shop -o yaml
            -n kubectl-get get route shop -o json
            -n kubectl-get get routes.route.openshift.io/shop -o name
            -n kubectl-get get route.v1.route.openshift.io shop
            -n kubectl-get get route shop -o jsonpath={.spec.host}:{.spec.to.weight}
            -n kubectl-get get routes -o jsonpath='{range .items[*]}{.metadata.name}={.spec.to.name}{\"\\n\"}{end}'
            -n kubectl-get get routes -o custom-columns=NAME:.metadata.name,HOST:.spec.host,TLS:.spec.tls.termination
            -n kubectl-get get routes -o go-template='{{range .items}}{{.metadata.name}} {{end}}'
            -n kubectl-get get cm,routes,secrets
            -n kubectl-get get cm,routes -o name
            -n kubectl-get get cm -l app=web
            -n kubectl-get get cm -l 'app in (db)' --show-labels
            -n kubectl-get get cm -l '!app'
            -n kubectl-get get cm -L app
            -n kubectl-get get cm --no-headers
            -n kubectl-get get cm --sort-by=.metadata.name
            -n kubectl-get get cm --chunk-size=1
            -n kubectl-get get cm --field-selector metadata.name=two
            ! -n kubectl-get get cm --field-selector spec.nonsense=two
            -n kubectl-get get routes --field-selector spec.host=shop.example.com
            -n kubectl-get get secrets --field-selector type=Opaque
            get cm,routes -A -l script=kubectl-get
            get routes -A -l script=kubectl-get -o wide
            get ns kubectl-get
            get namespace kubectl-get -o yaml
            get ns kubectl-get -o wide --show-labels
            -n kubectl-get get leases
            -n kubectl-get get lease leader -o yaml
            -n kubectl-get get sa
            -n kubectl-get get events
            -n kubectl-get get events -o wide
            -n kubectl-get get events.events.k8s.io
            -n kubectl-get get events.events.k8s.io shop.1 -o yaml
            -n kubectl-get get events one.1 -o yaml
            -n kubectl-get get events --field-selector involvedObject.name=shop
            -n kubectl-get get services
            -n kubectl-get get statefulsets
            -n kubectl-get get all -l no=such
            ! -n kubectl-get get secret nobody
            -n kubectl-get get secret nobody --ignore-not-found
            ! -n kubectl-get get nonsense
            -n kubectl-get-nowhere get secrets
            ! -n kubectl-get get cm -l '='
            -n kubectl-get get cm one --show-managed-fields=false -o yaml
            ! -n kubectl-get get --raw /api/v1/namespaces/kubectl-get/secrets/nobody
            get --raw /readyz
            -n kubectl-get get cm --watch-only --request-timeout=1s
            -n kubectl-get get routes --output=kyaml
        ",
    }
}

fn writing() -> Script {
    let unknown = "
apiVersion: route.openshift.io/v1
kind: Route
metadata: {name: odd, namespace: kubectl-write}
spec: {to: {name: shop}, nonsense: 1}
"
    .to_owned();
    let invalid = "
apiVersion: route.openshift.io/v1
kind: Route
metadata: {name: odd, namespace: kubectl-write}
spec: {to: {kind: Pod}, tls: {termination: passthrough}, path: /p}
"
    .to_owned();
    let unknown_secret = "
apiVersion: v1
kind: Secret
metadata: {name: odd, namespace: kubectl-write}
dato: {a: eA==}
"
    .to_owned();
    Script {
        name: "writing",
        files: vec![
            ("objects.yaml", objects("kubectl-write")),
            ("unknown.yaml", unknown),
            ("unknown-secret.yaml", unknown_secret),
            ("invalid.yaml", invalid),
        ],
        lines: "
            create namespace kubectl-write
            ! create namespace kubectl-write
            create -f objects.yaml --dry-run=server
            create -f objects.yaml --dry-run=client
            create -f objects.yaml
            ! create -f unknown.yaml
            create -f unknown.yaml --validate=warn
            ! create -f unknown-secret.yaml
            create -f unknown-secret.yaml --validate=ignore
            ! create -f invalid.yaml
            -n kubectl-write create secret tls shop-tls --cert=tls.crt --key=tls.key
            ! -n kubectl-write create secret tls shop-tls --cert=tls.crt --key=tls.key
            -n kubectl-write get secret shop-tls
            -n kubectl-write get secret shop-tls -o jsonpath={.type}
            -n kubectl-write create secret generic words --from-literal=a=x --from-literal=b=y
            -n kubectl-write create secret generic words2 --from-literal=a=x --type=example.com/own -o yaml
            -n kubectl-write create secret docker-registry pull --docker-server=x --docker-username=u --docker-password=p
            ! -n kubectl-write create secret generic Bad --from-literal=a=x
            -n kubectl-write create configmap words --from-literal=a=x
            -n kubectl-write create configmap files --from-file=objects.yaml -o name
            ! -n kubectl-write create configmap words --from-literal=a=x
            -n kubectl-write create serviceaccount other
            ! -n kubectl-write create cm nowhere -n kubectl-nowhere
            -n kubectl-write annotate route shop route.openshift.io/tls-secret-name=shop-tls
            -n kubectl-write annotate route shop route.openshift.io/tls-secret-name=shop-tls
            ! -n kubectl-write annotate route shop route.openshift.io/tls-secret-name=other
            -n kubectl-write annotate --overwrite route shop route.openshift.io/tls-secret-name=other
            -n kubectl-write annotate route shop --list
            -n kubectl-write annotate route shop route.openshift.io/tls-secret-name-
            ! -n kubectl-write annotate cm --all note=all
            -n kubectl-write label cm one tier=front
            ! -n kubectl-write label cm one tier=back
            -n kubectl-write label --overwrite cm one tier=back
            -n kubectl-write label cm one tier-
            -n kubectl-write label cm -l app=web colour=red
            ! -n kubectl-write label cm one 'bad key=x'
            ! -n kubectl-write label secret nobody a=b
            -n kubectl-write get cm --show-labels
            -n kubectl-write get route shop -o jsonpath={.metadata.annotations}
            -n kubectl-write label ns kubectl-write team=one
            -n kubectl-write get ns kubectl-write --show-labels
        ",
    }
}

fn applying() -> Script {
    let manifest = |data: &str, labels: &str, tls: &str| {
        format!(
            "
apiVersion: v1
kind: ConfigMap
metadata: {{name: one, namespace: kubectl-apply, labels: {labels}}}
data: {data}
---
apiVersion: route.openshift.io/v1
kind: Route
metadata: {{name: shop, namespace: kubectl-apply, labels: {labels}}}
spec: {{host: shop.example.com, to: {{name: shop}}{tls}}}
---
apiVersion: v1
kind: Secret
metadata: {{name: plain, namespace: kubectl-apply, labels: {labels}}}
stringData: {data}
"
        )
    };
    Script {
        name: "applying",
        files: vec![
            (
                "first.yaml",
                manifest("{a: x, b: yy}", "{app: web, tier: front}", ", tls: {termination: edge}"),
            ),
            (
                "changed.yaml",
                manifest(
                    "{a: z, b: yy, c: new}",
                    "{app: web, tier: back}",
                    ", tls: {termination: reencrypt}",
                ),
            ),
            ("removed.yaml", manifest("{a: z}", "{app: web}", "")),
        ],
        lines: "
            create namespace kubectl-apply
            apply -f first.yaml --dry-run=server
            apply -f first.yaml --dry-run=client
            apply -f first.yaml
            apply -f first.yaml
            -n kubectl-apply get cm one -o yaml
            -n kubectl-apply get route shop -o yaml
            apply -f changed.yaml
            -n kubectl-apply get cm one -o yaml
            -n kubectl-apply get route shop -o yaml
            -n kubectl-apply get secret plain -o yaml
            apply -f removed.yaml
            apply -f removed.yaml
            -n kubectl-apply get cm,routes,secrets -o yaml
            -n kubectl-apply apply view-last-applied cm/one
            -n kubectl-apply create cm by-hand --from-literal=a=x
            -n kubectl-apply get cm by-hand -o yaml
            replace -f first.yaml
            -n kubectl-apply get cm,routes,secrets -o yaml
            delete -f first.yaml
            ! replace -f first.yaml
            apply -f first.yaml -o name
            -n kubectl-apply apply set-last-applied -f first.yaml
            replace --force -f changed.yaml
            delete -f first.yaml --ignore-not-found
        ",
    }
}

fn patching() -> Script {
    Script {
        name: "patching",
        files: vec![("objects.yaml", objects("kubectl-patch"))],
        lines: r#"
            create namespace kubectl-patch
            create -f objects.yaml
            -n kubectl-patch patch route shop --type=merge -p '{"spec":{"host":"new.example.com"}}'
            -n kubectl-patch patch route shop --type=merge -p '{"spec":{"host":"new.example.com"}}'
            -n kubectl-patch patch route shop --type=json -p '[{"op":"remove","path":"/spec/tls"}]'
            ! -n kubectl-patch patch route shop --type=json -p '[{"op":"test","path":"/spec/host","value":"old"},{"op":"remove","path":"/spec/path"}]'
            ! -n kubectl-patch patch route shop -p '{"spec":{"host":"strategic.example.com"}}'
            ! -n kubectl-patch patch route shop --type=merge -p '{"spec":{"to":{"weight":1000}}}'
            -n kubectl-patch patch route shop --type=merge --subresource=status -p '{"status":{"certificate":[{"type":"Managed","status":"True","reason":"SecretInjected"}]}}'
            -n kubectl-patch get routes -o wide
            -n kubectl-patch patch cm one -p '{"data":{"a":"strategic","b":null}}'
            -n kubectl-patch patch cm one --type=merge -p '{"data":{"d":"merged"}}'
            -n kubectl-patch patch cm one --type=json -p '[{"op":"add","path":"/data/e","value":"json"}]' -o yaml
            -n kubectl-patch patch secret plain -p '{"stringData":{"c":"z"}}' -o yaml
            -n kubectl-patch patch sa robot -p '{"secrets":[{"name":"s1"}]}'
            -n kubectl-patch patch sa robot -p '{"secrets":[{"name":"s2"}]}' -o yaml
            -n kubectl-patch patch secret plain -p '{"immutable":true}'
            ! -n kubectl-patch patch secret plain -p '{"data":{"a":"eHl6"}}'
            ! -n kubectl-patch patch cm nobody -p '{}'
            ! -n kubectl-patch patch cm one -p '{'
            ! -n kubectl-patch patch cm one --type=merge -p '{"data":{"a":1}}'
            -n kubectl-patch patch cm one -p '{"metadata":{"finalizers":["example.com/hold"]}}' --dry-run=server -o yaml
            patch ns kubectl-patch -p '{"metadata":{"annotations":{"a":"b"}}}'
            ! -n kubectl-patch set env nonsense/x A=b
        "#,
    }
}

fn deleting() -> Script {
    Script {
        name: "deleting",
        files: vec![("objects.yaml", objects("kubectl-delete"))],
        lines: r#"
            create namespace kubectl-delete
            create -f objects.yaml
            -n kubectl-delete delete cm one --dry-run=server
            -n kubectl-delete delete cm one
            ! -n kubectl-delete delete cm one
            -n kubectl-delete delete cm one --ignore-not-found
            -n kubectl-delete delete cm -l app=db
            -n kubectl-delete delete routes --all
            -n kubectl-delete delete secret/plain sa/robot
            ! -n kubectl-delete delete nonsense x
            -n kubectl-delete create cm held
            -n kubectl-delete patch cm held -p '{"metadata":{"finalizers":["example.com/hold"]}}'
            ! -n kubectl-delete delete cm held --timeout=1s
            -n kubectl-delete delete cm held --wait=false
            -n kubectl-delete get cm
            -n kubectl-delete patch cm held -p '{"metadata":{"finalizers":null}}'
            -n kubectl-delete get cm
            -n kubectl-delete delete events --all
            -n kubectl-delete delete lease leader --cascade=foreground
            -n kubectl-delete create cm again
            -n kubectl-delete delete cm again --cascade=orphan --now
            -n kubectl-delete get cm,secrets,routes,leases,events
            delete ns kubectl-delete
            ! get ns kubectl-delete
        "#,
    }
}

fn waiting() -> Script {
    Script {
        name: "waiting",
        files: vec![("objects.yaml", objects("kubectl-wait"))],
        lines: r#"
            create namespace kubectl-wait
            create -f objects.yaml
            -n kubectl-wait wait --for=jsonpath={.data.a}=x cm/one --timeout=5s
            ! -n kubectl-wait wait --for=jsonpath={.data.a}=never cm/one --timeout=1s
            -n kubectl-wait wait --for=create cm/one --timeout=5s
            -n kubectl-wait wait --for=delete cm/nobody --timeout=5s
            ! -n kubectl-wait wait --for=delete cm/one --timeout=1s
            ! -n kubectl-wait wait --for=condition=Ready cm/nobody --timeout=1s
            patch ns kubectl-wait --subresource=status --type=merge -p '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
            wait --for=condition=Ready ns/kubectl-wait --timeout=5s
            ! wait --for=condition=Ready=false ns/kubectl-wait --timeout=1s
            -n kubectl-wait patch route shop --type=merge --subresource=status -p '{"status":{"ingress":[{"host":"shop.example.com","conditions":[{"type":"Admitted","status":"True"}]}]}}'
            -n kubectl-wait wait route/shop --for=jsonpath='{.status.ingress[0].conditions[0].status}'=True --timeout=5s
            -n kubectl-wait wait route -l app=web --for=jsonpath={.spec.host}=shop.example.com --timeout=5s
        "#,
    }
}

fn describing() -> Script {
    Script {
        name: "describing",
        files: vec![("objects.yaml", objects("kubectl-describe"))],
        lines: "
            create namespace kubectl-describe
            create -f objects.yaml
            -n kubectl-describe describe secret plain
            -n kubectl-describe describe cm one
            -n kubectl-describe describe cm
            -n kubectl-describe describe route shop
            -n kubectl-describe describe routes -l app=web
            -n kubectl-describe describe lease leader
            -n kubectl-describe describe sa robot
            ! -n kubectl-describe describe secret nobody
            -n kubectl-describe describe event shop.1
            -n kubectl-describe events
            -n kubectl-describe events --for route/shop
            -n kubectl-describe events --for cm/one
            -n kubectl-describe events --types=Warning
            -n kubectl-describe events -o name
            -n kubectl-describe-nowhere events
        ",
    }
}

fn watching() -> Script {
    Script {
        name: "watching",
        files: vec![("objects.yaml", objects("kubectl-watch"))],
        lines: "
            create namespace kubectl-watch
            create -f objects.yaml
            & -n kubectl-watch get cm -w
            & -n kubectl-watch get cm -w --output-watch-events
            & -n kubectl-watch get routes -w -o wide
            & -n kubectl-watch get route shop -w -o jsonpath={.spec.host}/
            & -n kubectl-watch get cm -w -l app=web -o name
            & -n kubectl-watch events -w
            -n kubectl-watch create cm three
            -n kubectl-watch label cm three app=web
            -n kubectl-watch label cm three app-
            -n kubectl-watch delete cm three
            -n kubectl-watch patch route shop --type=merge -p {\"spec\":{\"host\":\"other.example.com\"}}
            -n kubectl-watch delete route plain
        ",
    }
}

fn exploring() -> Script {
    Script {
        name: "exploring",
        files: Vec::new(),
        lines: "
            api-resources --api-group=route.openshift.io
            api-resources --api-group=coordination.k8s.io -o name
            explain route
            explain route.spec.tls
            explain route.status.certificate
            explain secret
            explain configmap.data
            explain routes --recursive
            ! explain route.nonsense
            ! explain nonsense
        ",
    }
}

fn issuing_tokens() -> Script {
    let review = "apiVersion: authentication.k8s.io/v1\nkind: TokenReview\nspec: {token: x}\n";
    Script {
        name: "issuing tokens",
        files: vec![("review.yaml", review.to_owned())],
        lines: "
            create namespace kubectl-token
            -n kubectl-token create serviceaccount shop
            -n kubectl-token create secret generic session
            -n kubectl-token create token shop
            -n kubectl-token create token shop --duration=1h --audience=a --audience=b -o yaml
            -n kubectl-token create token shop --bound-object-kind=Secret --bound-object-name=session -o json
            ! -n kubectl-token create token shop --duration=1s
            ! -n kubectl-token create token shop --bound-object-kind=Secret --bound-object-name=none
            ! -n kubectl-token create token shop --bound-object-kind=Pod --bound-object-name=none
            ! -n kubectl-token create token nobody
            create -f review.yaml
            create -f review.yaml -o yaml
            create -f review.yaml --dry-run=server
            ! get tokenreviews
            ! apply -f review.yaml
            explain tokenreview.spec
            explain tokenreview.status.user
            api-resources --api-group=authentication.k8s.io
        ",
    }
}
