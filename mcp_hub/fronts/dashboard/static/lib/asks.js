// Calls that wait for a person's yes, and how this page makes itself heard.
import { get } from './api.js';
import { changed, mayChange, store } from './store.js';

const YES = "a person's yes"; // what such a call waits for

// Calls that wait for a yes. A new one that is for who looks at this page makes itself heard.
export async function loadAsks() {
  try {
    const { asks } = await get('asks');
    const known = new Set(store.asks.map((ask) => ask.id)); // by now: another answer may have come meanwhile
    store.asks = asks;
    const news = asks.filter((ask) => ask.may_answer && !known.has(ask.id));
    if (news.length && mayChange()) call(news);
  } catch { /* the next change tries again */ }
  changed();
}

// For a change of the calls that run.
export function followAsks() {
  if (store.asks.length || store.live.some((one) => one.waits_for === YES)) loadAsks();
}

// A tone, and a notification where the browser lets this page show one.
function call(asks) {
  try {
    const sound = new AudioContext(), tone = sound.createOscillator(), volume = sound.createGain();
    volume.gain.setValueAtTime(0.15, sound.currentTime);
    volume.gain.exponentialRampToValueAtTime(0.001, sound.currentTime + 0.4);
    tone.frequency.value = 660;
    tone.connect(volume).connect(sound.destination);
    tone.start();
    tone.stop(sound.currentTime + 0.4);
    tone.onended = () => sound.close();
  } catch { /* a page that nobody has clicked on makes no sound */ }
  if (globalThis.Notification?.permission === 'granted' && document.hidden) {
    const shown = new Notification('A call waits for your yes', { body: asks.map((ask) => `${ask.tool} of ${ask.server}`).join('\n'), tag: 'mcp-hub-ask' });
    shown.onclick = () => { focus(); shown.close(); };
  }
}

// Whether the browser can still be asked to let this page show notifications.
export const mayAskToNotify = () => globalThis.Notification?.permission === 'default' && isSecureContext;
export async function askToNotify() {
  await Notification.requestPermission();
  changed();
}
