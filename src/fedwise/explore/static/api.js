// Questions to the server. One of a kind is on its way at any time; the newest waits, older ones are dropped.
// Each belongs to a version of the page, one more with every change. The server ends longer work of an earlier version;
// work of the same version is never overtaken, however late a question of it is sent.

const page = crypto.randomUUID();

async function send(path, body, version) {
  const response = await fetch(`${path}?page=${page}&n=${version}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body,
  });
  if (!response.ok) throw new Error("the server refused the question");
  const answer = await response.json();
  if (answer.error) throw new Error(answer.error);
  return answer.stale ? null : answer;
}

// A question on its own, whose answer nothing overtakes.
export function once(path, body) {
  return send(path, body, 0);
}

export function channel(path, show, fail) {
  let waiting = null, busy = false;
  async function pump() {
    if (busy) return;
    busy = true;
    while (waiting !== null) {
      const { body, version } = waiting;
      waiting = null;
      try {
        const answer = await send(path, body, version);
        if (answer !== null) show(answer, body, version);
      } catch (error) {
        if (waiting === null) fail(error);
      }
    }
    busy = false;
  }
  return (body, version) => {
    waiting = { body, version };
    pump();
  };
}

// For work that takes a while: starts after a pause, and a newer question makes the server drop the older one.
export function patient(path, show, fail, pause) {
  let timer = 0, latest = 0;
  const ask = (body, version) => {
    clearTimeout(timer);
    const mine = ++latest;
    timer = setTimeout(async () => {
      try {
        const answer = await send(path, body, version);
        if (answer !== null && mine === latest) show(answer, body, version);
      } catch (error) {
        if (mine === latest) fail(error);
      }
    }, pause);
  };
  const cancel = () => {
    clearTimeout(timer);
    latest++;
  };
  return { ask, cancel };
}

export async function pool() {
  const response = await fetch("api/pool");
  if (!response.ok) throw new Error("the server refused; open the address that fedwise explore printed");
  return response.json();
}
