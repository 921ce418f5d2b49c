// What the official JavaScript SDK, unchanged, is asked to do: one flow by name, its findings as JSON on standard output.
//
// SDK_FOLDER is where it is installed; SPRITES_URL, SPRITE_TOKEN and SPRITE_NAME say which API and which sprite to talk
// to. What was found is judged by test_javascript_sdk.py and by tests/cluster/test_gateway_sdks.py. A flow that must wait
// for something from outside writes a line `ready` and reads a line.

import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import { pathToFileURL } from 'node:url';

const { SDK_FOLDER, SPRITES_URL, SPRITE_TOKEN, SPRITE_NAME } = process.env;
const require = createRequire(`${SDK_FOLDER}/package.json`);
const sdk = await import(pathToFileURL(require.resolve('@fly/sprites')));

const client = new sdk.SpritesClient(SPRITE_TOKEN, { baseURL: SPRITES_URL });
const sprite = client.sprite(SPRITE_NAME ?? 'my-sprite');

// --- words ---------------------------------------------------------------------------------------------------------

// What an error tells a caller.
function tell(error) {
  return {
    kind: error.constructor.name,
    message: error.message,
    status: error.statusCode,
    code: error.errorCode,
    creationLimited: error.isCreationRateLimited?.(),
    retryAfter: error.getRetryAfterSeconds?.(),
    limit: error.rateLimitLimit,
    exitCode: error.exitCode,
    stdout: error.stdout?.toString(),
    stderr: error.stderr?.toString(),
  };
}

async function failing(promise) {
  try {
    await promise;
  } catch (error) {
    return tell(error);
  }
  throw new Error('It did not fail.');
}

// Collects what a command writes, and waits for a text in it.
function listen(command) {
  const heard = { stdout: '', stderr: '', messages: [], errors: [] };
  command.stdout.on('data', (data) => (heard.stdout += data));
  command.stderr.on('data', (data) => (heard.stderr += data));
  command.on('message', (message) => heard.messages.push(message));
  command.on('error', (error) => heard.errors.push(error.message));
  heard.until = async (text) => {
    while (!heard.stdout.includes(text)) await once(command.stdout, 'data');
  };
  heard.untilMessage = async (type) => {
    while (!heard.messages.some((message) => message.type === type)) await once(command, 'message');
    return heard.messages.find((message) => message.type === type);
  };
  return heard;
}

// Lets the test look or do something while the flow stays where it is.
async function pause(found = {}) {
  process.stdout.write(`${JSON.stringify({ ready: found })}\n`);
  const lines = createInterface({ input: process.stdin });
  await once(lines, 'line');
  lines.close();
}

async function collect(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

// --- flows ---------------------------------------------------------------------------------------------------------

const flows = {
  async versions() {
    const described = JSON.parse(readFileSync(`${SDK_FOLDER}/node_modules/@fly/sprites/package.json`, 'utf8'));
    return { node: process.versions.node, sdk: described.version };
  },

  async create() {
    const created = await client.createSprite('my-sprite', { labels: ['blue'] });
    const found = await client.getSprite('my-sprite');
    return { created: created.id, found: { ...found, client: undefined } };
  },

  async listAll() {
    return (await client.listAllSprites('many-')).map((found) => found.name);
  },

  async watch() {
    const stream = await client.watchSprites({ prefix: 'my-' });
    await pause();
    let event;
    do event = await stream.next();
    while (event && event.type === 'heartbeat');
    stream.close();
    return event;
  },

  async change() {
    await sprite.updateURLSettings({ auth: 'public' });
    const updated = await sprite.update({ labels: ['green'] });
    const check = await sprite.check();
    return { auth: updated.urlSettings.auth, labels: updated.labels, check };
  },

  async restart() {
    return await sprite.restart();
  },

  async deleteIt() {
    await sprite.delete();
    return await failing(client.getSprite('my-sprite'));
  },

  async wrongToken() {
    return await failing(new sdk.SpritesClient('acme/1/aa/wrong', { baseURL: SPRITES_URL }).getSprite('my-sprite'));
  },

  async badName() {
    return await failing(client.createSprite('Not A Name'));
  },

  async limited() {
    await client.createSprite('one');
    return await failing(client.createSprite('two'));
  },

  async output() {
    return await sprite.execFile('sh', ['-c', 'echo out; echo err >&2']);
  },

  async exitCode() {
    return await failing(sprite.execFile('sh', ['-c', 'echo out; echo err >&2; exit 7']));
  },

  async lateOutput() {
    return await failing(sprite.execFile('sh', ['-c', 'echo soon; (sleep 0.2; echo late) & exit 3']));
  },

  async words() {
    return (await sprite.exec('echo one two')).stdout;
  },

  async notThere() {
    return await failing(sprite.execFile('no-such-program'));
  },

  async largeOutput() {
    const { stdout } = await sprite.execFile('head', ['-c', '3000000', '/dev/zero'], { encoding: 'buffer' });
    return stdout.length;
  },

  async input() {
    const command = sprite.spawn('sh', ['-c', 'tr a-z A-Z; echo end']);
    const heard = listen(command);
    await once(command, 'spawn');
    for (let n = 0; n < 1000; n++) command.stdin.write('hello\n'.repeat(50));
    command.stdin.end();
    return { code: await command.wait(), stdout: heard.stdout };
  },

  async surroundings() {
    const options = { cwd: '/tmp', env: { COLOUR: 'blue' } };
    return (await sprite.execFile('/bin/sh', ['-c', 'pwd; echo "$COLOUR"'], options)).stdout;
  },

  async plainHTTP() {
    const done = await sprite.execFileHTTP('sh', ['-c', 'cat; echo err >&2'], { input: 'hello' });
    const failed = await failing(sprite.execFileHTTP('sh', ['-c', 'echo out; exit 9']));
    return { done, failed };
  },

  async terminal() {
    const command = sprite.spawn('sh', ['-c', 'tty; stty size'], { tty: true, rows: 50, cols: 132 });
    const heard = listen(command);
    return { code: await command.wait(), stdout: heard.stdout, messages: heard.messages };
  },

  async resize() {
    const command = sprite.createSession('sh', ['-c', 'echo begin; read line; stty size'], { rows: 24, cols: 80 });
    const heard = listen(command);
    await heard.until('begin');
    command.resize(101, 37);
    command.stdin.write('\n');
    await command.wait();
    return heard.stdout;
  },

  async endOfTerminal() {
    const command = sprite.createSession('sh', ['-c', 'exit 5']);
    const heard = listen(command);
    return { code: await command.wait(), exits: heard.messages.filter((message) => message.type === 'exit') };
  },

  async signal() {
    const script = 'trap "echo interrupted; exit 4" INT; echo begin; while :; do sleep 0.05; done';
    const command = sprite.spawn('sh', ['-c', script]);
    const heard = listen(command);
    await heard.until('begin');
    command.kill('SIGINT');
    return { code: await command.wait(), stdout: heard.stdout };
  },

  async list() {
    return await sprite.listSessions();
  },

  async leave() {
    const command = sprite.createSession('sleep', ['1000']);
    const info = await listen(command).untilMessage('session_info');
    return info.session_id;
  },

  async leavePipe() {
    const command = sprite.spawn('sleep', ['1000'], { maxRunAfterDisconnect: '0' });
    await once(command, 'spawn');
    await pause();
    return null;
  },

  async attach() {
    const [session] = await sprite.listSessions();
    const command = sprite.attachSession(session.id);
    const heard = listen(command);
    await once(command, 'spawn');
    await heard.until('before');
    command.stdin.write('now\n');
    await command.wait();
    return { stdout: heard.stdout, messages: heard.messages };
  },

  // Types into the only session, and stays until its end or somebody else's takeover.
  async attachAndStay() {
    const [session] = await sprite.listSessions();
    const command = sprite.attachSession(session.id);
    const heard = listen(command);
    await once(command, 'spawn');
    command.stdin.write('from javascript\n');
    await heard.until('got from javascript');
    await pause();
    const code = await command.wait();
    return { code, stdout: heard.stdout, messages: heard.messages, errors: heard.errors };
  },

  // Types into the only session what ends it.
  async attachAndEnd() {
    const [session] = await sprite.listSessions();
    const command = sprite.attachSession(session.id);
    const heard = listen(command);
    await once(command, 'spawn');
    command.stdin.write('go\n');
    return { code: await command.wait(), messages: heard.messages, errors: heard.errors };
  },

  async attachToPipe() {
    const [session] = await sprite.listSessions();
    const command = sprite.attachSession(session.id);
    const heard = listen(command);
    await heard.until('before');
    command.stdin.write('now\n');
    return { code: await command.wait(), stdout: heard.stdout };
  },

  async attachToNothing() {
    const command = sprite.attachSession('99');
    const heard = listen(command);
    await once(command, 'error');
    return heard.errors;
  },

  async killByDefault() {
    const [session] = await sprite.listSessions();
    return await collect(await sprite.killSession(session.id, undefined, '300ms'));
  },

  async killByName() {
    const [session] = await sprite.listSessions();
    return await collect(await sprite.killSession(session.id, 'SIGKILL'));
  },

  async killNothing() {
    return await failing(sprite.killSession('99', 'SIGKILL'));
  },

  async ports() {
    const serve =
      'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen(); print(s.getsockname()[1]); input()';
    const command = sprite.createSession('python3', ['-c', serve]);
    const heard = listen(command);
    const opened = await heard.untilMessage('port_opened');
    command.stdin.write('\n');
    await command.wait();
    return { opened, stdout: heard.stdout };
  },

  async controlMode() {
    const controlling = new sdk.SpritesClient(SPRITE_TOKEN, { baseURL: SPRITES_URL, controlMode: true });
    return (await controlling.sprite('my-sprite').execFile('echo', ['hi'])).stdout;
  },

  async notServed() {
    return { services: await failing(sprite.listServices()), upgrade: await failing(sprite.upgrade()) };
  },
};

// --- one of them ---------------------------------------------------------------------------------------------------

const found = await flows[process.argv[2]]();
process.stdout.write(`${JSON.stringify({ found: found ?? null })}\n`, () => process.exit(0));
