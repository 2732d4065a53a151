// Uses the JavaScript client on the cluster of KUBECONFIG: one line `ok CLAIM` or `FAILED CLAIM: why` per use.

import assert from 'node:assert/strict';
import * as k8s from '@kubernetes/client-node';

const PATIENCE = 30_000;
const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const apps = config.makeApiClient(k8s.AppsV1Api);
const custom = config.makeApiClient(k8s.CustomObjectsApi);
const definitions = config.makeApiClient(k8s.ApiextensionsV1Api);
const access = config.makeApiClient(k8s.AuthorizationV1Api);

const as = (strategy) => k8s.setHeaderOptions('Content-Type', strategy);
const map = (name, data = {}, labels = undefined) => ({ metadata: { name, labels }, data });
const deployment = (name, replicas) => ({
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name },
    spec: {
        replicas,
        selector: { matchLabels: { app: name } },
        template: {
            metadata: { labels: { app: name } },
            spec: { containers: [{ name: 'web', image: 'nginx:1.29', ports: [{ containerPort: 80 }] }] },
        },
    },
});

/** The Status with which the server refuses. */
async function refused(code, reason, call) {
    try {
        await call();
    } catch (error) {
        assert.equal(error.code, code, `${error}`);
        const status = typeof error.body === 'string' ? JSON.parse(error.body) : error.body;
        assert.equal(status.kind, 'Status');
        assert.equal(status.reason, reason);
        return status;
    }
    assert.fail(`the server took it; expected ${code} ${reason}`);
}

function within(what, promise) {
    const late = new Promise((_, reject) => {
        setTimeout(() => reject(new Error(`not within ${PATIENCE} ms: ${what}`)), PATIENCE).unref();
    });
    return Promise.race([promise, late]);
}

/** Things that arrive later, to be taken in order. */
function mailbox() {
    const waiting = [];
    const arrived = [];
    return {
        put: (item) => (waiting.length ? waiting.shift()(item) : arrived.push(item)),
        take: (what) =>
            arrived.length
                ? Promise.resolve(arrived.shift())
                : within(what, new Promise((resolve) => waiting.push(resolve))),
    };
}

const uses = {
    'a typed object is created, read, replaced and deleted': async (namespace) => {
        const made = await core.createNamespacedConfigMap({ namespace, body: map('a', { k: '1' }) });
        assert.ok(made.metadata.creationTimestamp instanceof Date);
        made.data.k = '2';
        const replaced = await core.replaceNamespacedConfigMap({ name: 'a', namespace, body: made });
        assert.notEqual(replaced.metadata.resourceVersion, made.metadata.resourceVersion);
        assert.deepEqual((await core.readNamespacedConfigMap({ name: 'a', namespace })).data, { k: '2' });
        const status = await core.deleteNamespacedConfigMap({ name: 'a', namespace });
        assert.equal(status.status, 'Success');
        await refused(404, 'NotFound', () => core.readNamespacedConfigMap({ name: 'a', namespace }));
    },

    'lists are read in pages and by selector': async (namespace) => {
        for (let number = 0; number < 5; number += 1) {
            const labels = { odd: String(number % 2) };
            await core.createNamespacedConfigMap({ namespace, body: map(`m${number}`, {}, labels) });
        }
        const names = [];
        let _continue;
        do {
            const page = await core.listNamespacedConfigMap({ namespace, limit: 2, _continue });
            names.push(...page.items.map((item) => item.metadata.name));
            _continue = page.metadata._continue;
        } while (_continue);
        assert.deepEqual(names, ['m0', 'm1', 'm2', 'm3', 'm4']);
        const odd = await core.listNamespacedConfigMap({ namespace, labelSelector: 'odd=1' });
        assert.equal(odd.items.length, 2);
        const one = await core.listNamespacedConfigMap({ namespace, fieldSelector: 'metadata.name=m4' });
        assert.equal(one.items.length, 1);
        await core.deleteCollectionNamespacedConfigMap({ namespace, labelSelector: 'odd=0' });
        assert.equal((await core.listNamespacedConfigMap({ namespace })).items.length, 2);
    },

    'every sort of patch works': async (namespace) => {
        await core.createNamespacedConfigMap({ namespace, body: map('a', { k: '1' }) });
        const target = { name: 'a', namespace };
        const operations = [{ op: 'replace', path: '/data/k', value: '2' }];
        const patched = await core.patchNamespacedConfigMap(
            { ...target, body: operations },
            as(k8s.PatchStrategy.JsonPatch),
        );
        assert.deepEqual(patched.data, { k: '2' });
        const merged = await core.patchNamespacedConfigMap(
            { ...target, body: { data: { k: null, n: '3' } } },
            as(k8s.PatchStrategy.MergePatch),
        );
        assert.deepEqual(merged.data, { n: '3' });

        await apps.createNamespacedDeployment({ namespace, body: deployment('web', 2) });
        const containers = [{ name: 'web', image: 'nginx:1.30' }];
        const strategic = await apps.patchNamespacedDeployment(
            { name: 'web', namespace, body: { spec: { template: { spec: { containers } } } } },
            as(k8s.PatchStrategy.StrategicMergePatch),
        );
        assert.equal(strategic.spec.template.spec.containers[0].ports[0].containerPort, 80);
        const apply = (replicas, fieldManager, force) =>
            apps.patchNamespacedDeployment(
                { name: 'applied', namespace, body: deployment('applied', replicas), fieldManager, force },
                as(k8s.PatchStrategy.ServerSideApply),
            );
        await apply(1, 'one');
        const status = await refused(409, 'Conflict', () => apply(2, 'two'));
        assert.equal(status.details.causes[0].field, '.spec.replicas');
        assert.equal((await apply(2, 'two', true)).spec.replicas, 2);
    },

    'status and scale have their own doors': async (namespace) => {
        const body = await apps.createNamespacedDeployment({ namespace, body: deployment('web', 2) });
        const target = { name: 'web', namespace };
        body.status.replicas = 1;
        body.spec.replicas = 9;
        const seen = await apps.replaceNamespacedDeploymentStatus({ ...target, body });
        assert.deepEqual([seen.status.replicas, seen.spec.replicas], [1, 2]);
        const scale = await apps.readNamespacedDeploymentScale(target);
        scale.spec.replicas = 4;
        await apps.replaceNamespacedDeploymentScale({ ...target, body: scale });
        assert.equal((await apps.readNamespacedDeployment(target)).spec.replicas, 4);
    },

    'a watch shows changes and resumes where it ended': async (namespace) => {
        const path = `/api/v1/namespaces/${namespace}/configmaps`;
        const begin = (await core.listNamespacedConfigMap({ namespace })).metadata.resourceVersion;
        const follow = async (resourceVersion) => {
            const events = mailbox();
            const watch = new k8s.Watch(config);
            const query = { resourceVersion, allowWatchBookmarks: true };
            const put = (type, object) => type !== 'BOOKMARK' && events.put({ type, object });
            const ended = mailbox();
            const controller = await watch.watch(path, query, put, ended.put);
            return { events, stop: () => controller.abort() };
        };
        const first = await follow(begin);
        await core.createNamespacedConfigMap({ namespace, body: map('a') });
        const added = await first.events.take('the first event');
        assert.deepEqual([added.type, added.object.metadata.name], ['ADDED', 'a']);
        first.stop();
        await core.deleteNamespacedConfigMap({ name: 'a', namespace });
        const second = await follow(added.object.metadata.resourceVersion);
        assert.equal((await second.events.take('the second event')).type, 'DELETED');
        second.stop();
    },

    'an informer follows what happens': async (namespace) => {
        await core.createNamespacedConfigMap({ namespace, body: map('a') });
        const path = `/api/v1/namespaces/${namespace}/configmaps`;
        const informer = k8s.makeInformer(config, path, () => core.listNamespacedConfigMap({ namespace }));
        const events = mailbox();
        for (const verb of ['add', 'update', 'delete']) {
            informer.on(verb, (object) => events.put(`${verb} ${object.metadata.name}`));
        }
        const connected = mailbox();
        informer.on('connect', () => connected.put(true));
        await informer.start();
        assert.equal(await events.take('the list'), 'add a');
        await connected.take('the watch');
        await core.createNamespacedConfigMap({ namespace, body: map('b') });
        assert.equal(await events.take('a new object'), 'add b');
        await core.patchNamespacedConfigMap(
            { name: 'a', namespace, body: { data: { k: 'v' } } },
            as(k8s.PatchStrategy.MergePatch),
        );
        assert.equal(await events.take('a change'), 'update a');
        await core.deleteNamespacedConfigMap({ name: 'a', namespace });
        assert.equal(await events.take('a delete'), 'delete a');
        assert.deepEqual(informer.list(namespace).map((object) => object.metadata.name), ['b']);
        await informer.stop();
    },

    'kinds of one\'s own are defined, used and validated': async (namespace) => {
        const properties = { spec: { type: 'object', properties: { sails: { type: 'integer', minimum: 1 } } } };
        await definitions.createCustomResourceDefinition({
            body: {
                metadata: { name: 'junks.example.com' },
                spec: {
                    group: 'example.com',
                    scope: 'Namespaced',
                    names: { plural: 'junks', singular: 'junk', kind: 'Junk' },
                    versions: [
                        {
                            name: 'v1',
                            served: true,
                            storage: true,
                            schema: { openAPIV3Schema: { type: 'object', properties } },
                        },
                    ],
                },
            },
        });
        const place = { group: 'example.com', version: 'v1', namespace, plural: 'junks' };
        const junk = (name, sails) => ({
            apiVersion: 'example.com/v1',
            kind: 'Junk',
            metadata: { name },
            spec: { sails, colour: 'red' },
        });
        const made = await custom.createNamespacedCustomObject({ ...place, body: junk('a', 3) });
        assert.deepEqual(made.spec, { sails: 3 }, 'what the schema does not know is pruned');
        const status = await refused(422, 'Invalid', () =>
            custom.createNamespacedCustomObject({ ...place, body: junk('b', 0) }),
        );
        assert.equal(status.details.causes[0].field, 'spec.sails');
        const patched = await custom.patchNamespacedCustomObject(
            { ...place, name: 'a', body: { spec: { sails: 4 } } },
            as(k8s.PatchStrategy.MergePatch),
        );
        assert.equal(patched.metadata.generation, 2);
        const list = await custom.listNamespacedCustomObject(place);
        assert.deepEqual([list.kind, list.items.length], ['JunkList', 1]);
        await custom.deleteNamespacedCustomObject({ ...place, name: 'a' });
        await refused(404, 'NotFound', () => custom.getNamespacedCustomObject({ ...place, name: 'a' }));
    },

    'any object is made, found and changed by its kind': async (namespace) => {
        const objects = k8s.KubernetesObjectApi.makeApiClient(config);
        const service = {
            apiVersion: 'v1',
            kind: 'Service',
            metadata: { name: 's', namespace },
            spec: { ports: [{ port: 80, targetPort: 'web' }] },
        };
        await objects.create(service);
        const found = await objects.read(service);
        assert.equal(found.spec.ports[0].targetPort, 'web');
        found.metadata.labels = { l: '1' };
        await objects.replace(found);
        const list = await objects.list('v1', 'Service', namespace, undefined, undefined, undefined, undefined, 'l=1');
        assert.equal(list.items.length, 1);
        await objects.delete(service);
    },

    'refusals say why': async (namespace) => {
        await core.createNamespacedConfigMap({ namespace, body: map('a') });
        const again = () => core.createNamespacedConfigMap({ namespace, body: map('a') });
        assert.deepEqual((await refused(409, 'AlreadyExists', again)).details, { name: 'a', kind: 'configmaps' });
        const status = await refused(404, 'NotFound', () => core.readNamespacedConfigMap({ name: 'no', namespace }));
        assert.equal(status.message, 'configmaps "no" not found');
        const bad = () => apps.createNamespacedDeployment({ namespace, body: deployment('web', -1) });
        assert.equal((await refused(422, 'Invalid', bad)).details.causes[0].field, 'spec.replicas');
    },

    'one can ask what one may do, and get a token': async (namespace) => {
        const review = await access.createSelfSubjectAccessReview({
            body: { spec: { resourceAttributes: { namespace, verb: 'create', resource: 'pods' } } },
        });
        assert.equal(review.status.allowed, true);
        await core.createNamespacedServiceAccount({ namespace, body: { metadata: { name: 'robot' } } });
        const answer = await core.createNamespacedServiceAccountToken({
            name: 'robot',
            namespace,
            body: { spec: { audiences: [], expirationSeconds: 3600 } },
        });
        assert.equal(answer.status.token.split('.').length, 3);
    },
};

async function run([claim, show]) {
    try {
        const made = await core.createNamespace({ body: { metadata: { generateName: 'use-' } } });
        await show(made.metadata.name);
        console.log(`ok javascript: ${claim}`);
        return true;
    } catch (error) {
        console.log(`FAILED javascript: ${claim}: ${`${error.stack ?? error}`.replaceAll(/\s+/g, ' ')}`);
        return false;
    }
}

const outcomes = await Promise.all(Object.entries(uses).map(run));
// The client keeps connections open, which would keep the program running.
process.exit(outcomes.every(Boolean) ? 0 : 1);
