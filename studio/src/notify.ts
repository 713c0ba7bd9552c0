// Telling the person that an agent began to wait, whatever page they look at, if they allowed it.
import { useEffect, useRef } from 'react';
import type { Stop } from './api/types';
import { go } from './route';

export function useNotification(stops: Stop[]) {
  const known = useRef(new Set<string>());
  useEffect(() => {
    const before = known.current;
    known.current = new Set(stops.map((stop) => stop.id));
    if (!('Notification' in window) || Notification.permission !== 'granted') return;
    for (const stop of stops) {
      if (before.has(stop.id)) continue;
      const shown = new Notification(`${stop.agent} waits: ${stop.tool}`, { body: stop.reason, tag: stop.id, icon: '/icon.svg' });
      shown.onclick = () => {
        window.focus();
        go('/live');
      };
    }
  }, [stops]);
}
