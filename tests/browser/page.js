// What somebody's page would do at the gateway, with nothing but fetch and WebSocket.
"use strict";

const SUBPROTOCOL = "exec.agentterminal.dev";
const BEARER = "base64url.bearer.authorization.k8s.io.";

/** Every socket of this page, and all that came over it, in its order. */
const sockets = [];

function carry(token) {
  return BEARER + btoa(token).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** Ask over HTTP what an attach would be answered; without a token the browser asks no leave of the gateway first. */
async function ask(address, token) {
  const headers = token === null ? {} : { Authorization: `Bearer ${token}` };
  try {
    const answer = await fetch(address, { headers });
    return { status: answer.status, body: await answer.json() };
  } catch (error) {
    return { unreadable: error.name };
  }
}

/** Attach, and give the number by which the socket is found from now on. */
function attach(address, token) {
  const connection = new WebSocket(address.replace(/^http/, "ws"), [SUBPROTOCOL, carry(token)]);
  const decoder = new TextDecoder();
  const socket = { connection, opened: false, protocol: null, output: "", texts: [], events: [], closed: null };
  connection.binaryType = "arraybuffer";
  connection.onopen = () => {
    socket.opened = true;
    socket.protocol = connection.protocol;
  };
  connection.onmessage = ({ data }) => {
    if (typeof data === "string") {
      socket.texts.push(JSON.parse(data));
      socket.events.push(JSON.parse(data).type);
    } else {
      socket.output += decoder.decode(data, { stream: true });
    }
  };
  connection.onclose = ({ code, reason, wasClean }) => {
    socket.events.push("close");
    socket.closed = { code, reason, wasClean };
  };
  return sockets.push(socket) - 1;
}

function type(number, text) {
  sockets[number].connection.send(new TextEncoder().encode(text));
}

function say(number, message) {
  sockets[number].connection.send(JSON.stringify(message));
}

/** What may be told of a socket to whoever judges this page. */
function tell(number) {
  const { connection, ...told } = sockets[number];
  return { ...told, url: connection.url };
}
