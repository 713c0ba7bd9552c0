// Browser notifications when an agent starts to wait, if the user has allowed them.
import { useEffect, useRef } from 'react';
import type { Stop } from './api/types';
import { navigate } from './route';

export function useStopNotifications(stops: Stop[]) {
  const knownIds = useRef(new Set<string>());
  useEffect(() => {
    const previousIds = knownIds.current;
    knownIds.current = new Set(stops.map((stop) => stop.id));
    if (!('Notification' in window) || Notification.permission !== 'granted') return;
    for (const stop of stops) {
      if (previousIds.has(stop.id)) continue;
      const notification = new Notification(`${stop.agent} is waiting: ${stop.tool}`, { body: stop.reason, tag: stop.id, icon: '/icon.svg' });
      notification.onclick = () => {
        window.focus();
        navigate('/live');
      };
    }
  }, [stops]);
}
